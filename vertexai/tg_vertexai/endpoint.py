"""Options -> project, location and credentials of a model on Vertex AI."""

from dataclasses import dataclass

from tg_base.llm import Endpoint


@dataclass(frozen=True, slots=True)
class VertexEndpoint(Endpoint):
    """An endpoint without a key; `tg_vertexai.account` supplies absent values.

    Attributes:
        project: the Google Cloud project that is billed.
        location: a region, or "global".
        credentials_file: a service account's key file.
    """

    project: str | None = None
    location: str | None = None
    credentials_file: str | None = None
