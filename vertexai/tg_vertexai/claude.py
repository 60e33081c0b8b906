"""TextCompletionRequest -> Claude on Vertex AI -> LlmChunks."""

import asyncio
from importlib import import_module
from typing import ClassVar, Literal, Self

from typing_extensions import override

from tg_base.llm import KeyedConnection, ProviderOptions
from tg_base.llm.anthropic import Claude, ClaudeConnection, ClaudeOptions
from tg_schema.errors import Internal


class VertexClaudeOptions(ClaudeOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of Claude on Vertex AI; for the last three see `tg_vertexai.account`.

    Google's organizations have structured outputs of Claude switched off unless they say otherwise, hence `schema_by`.
    """

    base_url_variables: tuple[str, ...] = ("ANTHROPIC_VERTEX_BASE_URL",)
    schema_by: Literal["format", "tool"] = "tool"
    project: str | None = None
    location: str | None = None
    credentials_file: str | None = None


class VertexClaude(Claude):
    """Claude on Vertex AI, through Anthropic's asynchronous SDK."""

    Options: ClassVar[type[ProviderOptions]] = VertexClaudeOptions

    @classmethod
    @override
    async def open(cls, model: str, options: ProviderOptions) -> Self:
        if not isinstance(options, VertexClaudeOptions):
            raise Internal("this provider was opened with the options of another one")
        module = await asyncio.to_thread(import_module, "tg_vertexai.claude_connection")
        place = (options.url(), options.project, options.location, options.credentials_file)
        connection = await KeyedConnection[ClaudeConnection].open_in_thread(None, lambda _: module.connection(*place))
        return cls(model, options, connection)
