"""TextCompletionRequest -> Gemini on Vertex AI -> LlmChunks."""

import asyncio
from importlib import import_module
from typing import ClassVar, Self

from typing_extensions import override

from tg_base.llm_service import ProviderOptions
from tg_base.wires.gemini import Gemini, GeminiOptions
from tg_schema.errors import Internal


class VertexGeminiOptions(GeminiOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of Gemini on Vertex AI; for the last three see `tg_vertexai.account`."""

    project: str | None = None
    location: str | None = None
    credentials_file: str | None = None


class VertexGemini(Gemini):
    """Gemini on Vertex AI, through Google's asynchronous SDK."""

    Options: ClassVar[type[ProviderOptions]] = VertexGeminiOptions

    @classmethod
    @override
    async def open(cls, model: str, options: ProviderOptions) -> Self:
        if not isinstance(options, VertexGeminiOptions):
            raise Internal("this provider was opened with the options of another one")
        module = await asyncio.to_thread(import_module, "tg_vertexai.gemini_connection")
        place = (options.base_url, options.project, options.location, options.credentials_file)
        return cls(model, options, await asyncio.to_thread(module.connection, options.upstream_model or model, *place))
