"""TextCompletionRequest -> Google AI Studio -> LlmChunks."""

import asyncio
from functools import partial
from importlib import import_module
from typing import ClassVar, Self

from typing_extensions import override

from tg_base.llm import KeyedConnection, ProviderOptions, choose_key
from tg_base.llm.gemini import Gemini, GeminiOptions
from tg_schema.errors import Internal


class GoogleAiStudioOptions(GeminiOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of Google AI Studio.

    Attributes:
        base_url_variables: the SDK's own.
        key_file: a file that holds the key, read again for every request.
        key_variable: the environment variable that holds the key; "" for a server that needs none.
        key_variables: where neither is said: the SDK's own two, and TrustGraph's between them.
    """

    base_url_variables: tuple[str, ...] = ("GOOGLE_GEMINI_BASE_URL",)
    default_base_url: str | None = "https://generativelanguage.googleapis.com"
    key_file: str | None = None
    key_variable: str | None = None
    key_variables: tuple[str, ...] = ("GOOGLE_API_KEY", "GOOGLE_AI_STUDIO_KEY", "GEMINI_API_KEY")


class GoogleAiStudio(Gemini):
    """Gemini behind Google AI Studio's API, through Google's asynchronous SDK."""

    Options: ClassVar[type[ProviderOptions]] = GoogleAiStudioOptions

    @classmethod
    @override
    async def open(cls, model: str, options: ProviderOptions) -> Self:
        if not isinstance(options, GoogleAiStudioOptions):
            raise Internal("this provider was opened with the options of another one")
        url, key = options.url(), choose_key(options.key_file, options.key_variable, options.key_variables)
        upstream = options.upstream_model or model
        module = await asyncio.to_thread(import_module, "tg_flow.providers.gemini.client")
        connect = partial(module.connection, upstream, url)
        return cls(model, options, await KeyedConnection.open_in_thread(key, connect))
