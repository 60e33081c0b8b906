"""TextCompletionRequest -> a deployment of Azure OpenAI -> LlmChunks: OpenAI's format at another kind of URL."""

import os
from typing import Literal

import msgspec
from typing_extensions import override

from tg_flow.providers.openai.endpoint import AzureEndpoint
from tg_flow.providers.openai.provider import ChatCompletions, OpenAi, OpenAiOptions
from tg_schema.features import Feature

API_VERSION = "2024-10-21"
"""The latest generally available version in Microsoft's list of API versions."""

_VERSION_VARIABLES = ("OPENAI_API_VERSION", "AZURE_OPENAI_API_VERSION", "AZURE_API_VERSION")


class AzureOpenAiOptions(OpenAiOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of Azure OpenAI. `base_url` is the resource's URL, `upstream_model` is the deployment's name.

    Attributes:
        api_version: the API's version; None = the variable `OPENAI_API_VERSION`, `AZURE_OPENAI_API_VERSION` or
            `AZURE_API_VERSION`, else `2024-10-21`.
    """

    without: frozenset[Feature] = frozenset({"top_k", "allowed_tools"})
    hint_fields: dict[Literal["user", "cache_key", "priority"], str] = msgspec.field(
        default_factory=lambda: {"user": "user"}
    )
    base_url_variables: tuple[str, ...] = ("AZURE_OPENAI_ENDPOINT", "AZURE_ENDPOINT")
    base_url_path: str = ""
    default_base_url: str | None = None
    key_variables: tuple[str, ...] = ("AZURE_OPENAI_API_KEY", "AZURE_TOKEN")
    api_version: str | None = None

    @override
    def endpoint(self, model: str) -> AzureEndpoint:
        versions = (os.environ.get(name, "").strip() for name in _VERSION_VARIABLES)
        version = self.api_version or next((version for version in versions if version), API_VERSION)
        return AzureEndpoint(super().endpoint(model).base_url, model, api_version=version)


class AzureOpenAi(ChatCompletions[AzureOpenAiOptions]):
    """The `azure-openai` provider."""

    wire = OpenAi.wire
