"""TextCompletionRequest -> Anthropic's Messages -> LlmChunks: what Claude's providers share, whoever hosts it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, ClassVar, Literal

import msgspec
from typing_extensions import override

from tg_base.llm import KeyedConnection, LlmChunk, LlmService, ProviderOptions, UrlOptions
from tg_base.llm.anthropic.client import ClaudeConnection
from tg_base.llm.anthropic.request import FEATURES, Defaults, answers_by_tool, to_wire
from tg_base.llm.anthropic.stream import StreamDecoder, error_detail
from tg_base.llm.http import event_chunks, open_body
from tg_schema import TextCompletionRequest


class ClaudeOptions(UrlOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of a provider of Claude.

    Attributes:
        upstream_model: the model's name at the provider; ours where absent.
        temperature: for requests that do not say; newer models refuse it.
        max_tokens: the bound on an answer's tokens, for requests that do not say.
        thinking: how many tokens the model may think before it answers, or "adaptive"; it does not where absent.
            The thinking's text is told apart. A request in a round of tool calls is answered without it.
        schema_by: how a schema reaches the model: "format" by structured outputs, "tool" by a tool that it must call,
            for models and places without structured outputs. JSON without a schema is always asked for by a tool.
    """

    upstream_model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 8192
    thinking: Annotated[int, msgspec.Meta(ge=1024)] | Literal["adaptive"] | None = None
    schema_by: Literal["format", "tool"] = "format"


class Claude(LlmService):
    """A provider of Claude; a subclass opens its connection."""

    Options: ClassVar[type[ProviderOptions]] = ClaudeOptions
    features = FEATURES

    def __init__(self, model: str, options: ClaudeOptions, connection: KeyedConnection[ClaudeConnection]) -> None:
        super().__init__(model, options)
        self._upstream_model = options.upstream_model or model
        self._connection = connection
        self._defaults = Defaults(
            options.max_tokens, options.temperature, options.thinking, schema_by_tool=options.schema_by == "tool"
        )

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        body = msgspec.to_builtins(to_wire(request, self._upstream_model, self._defaults))
        answer = StreamDecoder(by_tool=answers_by_tool(request, self._defaults))
        async with (
            self._connection.lend() as connection,
            open_body(connection.post(body), connection.failures, error_detail) as read,
            aclosing(event_chunks(read, answer)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    @override
    async def aclose(self) -> None:
        await self._connection.aclose()
