"""The address of a deployment on Azure OpenAI: a resource's URL, a deployment's name and an API version."""

from dataclasses import dataclass

from tg_base.llm import Endpoint


@dataclass(frozen=True, slots=True)
class AzureEndpoint(Endpoint):
    """A deployment on Azure OpenAI: `base_url` is the resource's URL, `model` is the deployment's name.

    Attributes:
        api_version: the API's version.
    """

    api_version: str = ""
