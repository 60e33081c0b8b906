"""TextCompletionRequest -> Google AI Studio -> LlmChunks."""

import asyncio
from importlib import import_module
from typing import ClassVar, Self

from typing_extensions import override

from tg_base.credentials import key_from
from tg_base.llm_service import ProviderOptions
from tg_base.wires.gemini import Gemini, GeminiOptions
from tg_schema.errors import Internal

_PREDECESSORS = {"GOOGLE_API_KEY": ("GOOGLE_AI_STUDIO_KEY", "GEMINI_API_KEY")}


class GoogleAiStudioOptions(GeminiOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of Google AI Studio.

    Attributes:
        key_variable: the environment variable that holds the key. Where `GOOGLE_API_KEY` is not set, the predecessor's
            `GOOGLE_AI_STUDIO_KEY` is taken, or else `GEMINI_API_KEY`.
    """

    base_url: str | None = "https://generativelanguage.googleapis.com"
    key_variable: str = "GOOGLE_API_KEY"


class GoogleAiStudio(Gemini):
    """Gemini behind Google AI Studio's API, through Google's asynchronous SDK."""

    Options: ClassVar[type[ProviderOptions]] = GoogleAiStudioOptions

    @classmethod
    @override
    async def open(cls, model: str, options: ProviderOptions) -> Self:
        if not isinstance(options, GoogleAiStudioOptions):
            raise Internal("this provider was opened with the options of another one")
        key = key_from(options.key_variable, *_PREDECESSORS.get(options.key_variable, ()))
        module = await asyncio.to_thread(import_module, "tg_flow.providers.google_ai_studio_connection")
        upstream = options.upstream_model or model
        return cls(model, options, await asyncio.to_thread(module.connection, upstream, options.base_url, key))
