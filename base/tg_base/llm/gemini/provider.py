"""TextCompletionRequest -> Gemini's contents -> LlmChunks: what Gemini's providers share, wherever it is served."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, ClassVar

import msgspec
from typing_extensions import override

from tg_base.llm import KeyedConnection, LlmChunk, LlmService, ProviderOptions, UrlOptions
from tg_base.llm.gemini.client import GeminiConnection
from tg_base.llm.gemini.request import FEATURES, Defaults, to_wire
from tg_base.llm.gemini.stream import StreamDecoder, error_detail, model_list
from tg_base.llm.gemini.thought_signatures import ThoughtSignatures
from tg_base.llm.http import event_chunks, open_body, read_whole_body
from tg_schema import ModelInfo, TextCompletionRequest

_encode = msgspec.json.Encoder().encode


class GeminiOptions(UrlOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of a provider of Gemini.

    Attributes:
        upstream_model: the model's name at the provider; ours where absent.
        temperature: for requests that do not say.
        max_tokens: the bound on an answer's tokens, thinking included, for requests that do not say.
        thoughts: ask for the thinking's text, which is told apart; only for models that think.
        thinking_budget: tokens that the model may think, 0 = none, -1 = as it likes; the provider's default where
            absent.
    """

    upstream_model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    thoughts: bool = False
    thinking_budget: Annotated[int, msgspec.Meta(ge=-1)] | None = None


class Gemini(LlmService):
    """A provider of Gemini; a subclass opens its connection."""

    Options: ClassVar[type[ProviderOptions]] = GeminiOptions
    features = FEATURES

    def __init__(self, model: str, options: GeminiOptions, connection: KeyedConnection[GeminiConnection]) -> None:
        super().__init__(model, options)
        self._connection = connection
        self._signatures = ThoughtSignatures()
        self._defaults = Defaults(options.max_tokens, options.temperature, options.thoughts, options.thinking_budget)

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        body = _encode(to_wire(request, self._defaults, self._signatures))
        async with (
            self._connection.lend() as connection,
            open_body(connection.post(body), connection.failures, error_detail) as read,
            aclosing(event_chunks(read, StreamDecoder(self._signatures))) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        async with self._connection.lend() as connection:
            listed = read_whole_body(connection.models(), connection.failures, error_detail, self.clocks.first_token)
            return model_list(await listed)

    @override
    async def aclose(self) -> None:
        await self._connection.aclose()
