"""Where an OpenAI-compatible API is, and with which key."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One API.

    Attributes:
        base_url: up to and without `/chat/completions`; for Azure OpenAI, the resource's URL.
        key: None = the server needs none.
        deployment: for Azure OpenAI, the deployment's name; "" = another API.
        api_version: for Azure OpenAI.
    """

    base_url: str
    key: str | None = field(default=None, repr=False)
    deployment: str = ""
    api_version: str = ""
