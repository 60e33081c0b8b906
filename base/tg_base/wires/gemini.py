"""TextCompletionRequest -> Gemini's contents -> LlmChunks: what Gemini's providers share, wherever it is served."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, ClassVar

import msgspec
from typing_extensions import override

from tg_base.llm_chunk import LlmChunk
from tg_base.llm_service import LlmService, ProviderOptions
from tg_base.wires.event_chunks import event_chunks
from tg_base.wires.gemini_answer import Answer, model_list, refusal
from tg_base.wires.gemini_connection import GeminiConnection
from tg_base.wires.gemini_contents import FEATURES, Defaults, to_wire
from tg_base.wires.sdk_response import opened, whole_body
from tg_base.wires.thought_signatures import ThoughtSignatures
from tg_schema import ModelInfo, TextCompletionRequest

_encode = msgspec.json.Encoder().encode


class GeminiOptions(ProviderOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of a provider of Gemini.

    Attributes:
        base_url: where the API is; the provider's own place where absent.
        upstream_model: the model's name at the provider; ours where absent.
        temperature: for requests that do not say.
        max_tokens: the bound on an answer's tokens, thinking included, for requests that do not say.
        thoughts: ask for the thinking's text, which is told apart; only for models that think.
        thinking_budget: tokens that the model may think, 0 = none, -1 = as it likes; the provider's default where
            absent.
    """

    base_url: str | None = None
    upstream_model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    thoughts: bool = False
    thinking_budget: Annotated[int, msgspec.Meta(ge=-1)] | None = None


class Gemini(LlmService):
    """A provider of Gemini; a subclass opens its connection."""

    Options: ClassVar[type[ProviderOptions]] = GeminiOptions
    features = FEATURES

    def __init__(self, model: str, options: GeminiOptions, connection: GeminiConnection) -> None:
        super().__init__(model, options)
        self._connection = connection
        self._signatures = ThoughtSignatures()
        self._defaults = Defaults(options.max_tokens, options.temperature, options.thoughts, options.thinking_budget)

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        body = _encode(to_wire(request, self._defaults, self._signatures))
        connection = self._connection
        async with (
            opened(connection.post(body), connection.failures, refusal) as read,
            aclosing(event_chunks(read, Answer(self._signatures))) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        connection = self._connection
        return model_list(await whole_body(connection.models(), connection.failures, refusal, self.clocks.first_token))

    @override
    async def aclose(self) -> None:
        await self._connection.aclose()
