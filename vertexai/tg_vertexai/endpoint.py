"""Options -> where a model on Vertex AI is, and whose it is."""

from dataclasses import dataclass

from tg_base.llm import Endpoint


@dataclass(frozen=True, slots=True)
class VertexEndpoint(Endpoint):
    """There is no key; for all else that is absent see `tg_vertexai.account`.

    Attributes:
        project: of Google Cloud, which pays.
        location: a region, or "global".
        credentials_file: a service account's key file.
    """

    project: str | None = None
    location: str | None = None
    credentials_file: str | None = None
