"""Where an OpenAI-compatible API is, and with which key: for Azure OpenAI, more than a URL."""

from dataclasses import dataclass

from tg_base.llm import Endpoint


@dataclass(frozen=True, slots=True)
class AzureEndpoint(Endpoint):
    """A deployment on Azure OpenAI: `base_url` is the resource's, `model` is the deployment's name.

    Attributes:
        api_version: of the API.
    """

    api_version: str = ""
