"""TextCompletionRequest -> Gemini on Vertex AI -> LlmChunks."""

import asyncio
from importlib import import_module
from typing import ClassVar, Self

from typing_extensions import override

from tg_base.llm import KeyedConnection, ProviderOptions
from tg_base.llm.gemini import Gemini, GeminiConnection, GeminiOptions
from tg_schema.errors import Internal


class VertexGeminiOptions(GeminiOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of Gemini on Vertex AI; for the last three see `tg_vertexai.account`."""

    base_url_variables: tuple[str, ...] = ("GOOGLE_VERTEX_BASE_URL",)
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
        upstream, url = options.upstream_model or model, options.url()
        place = (upstream, url, options.project, options.location, options.credentials_file)
        connection = await KeyedConnection[GeminiConnection].open_in_thread(None, lambda _: module.connection(*place))
        return cls(model, options, connection)
