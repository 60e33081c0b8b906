"""TextCompletionRequest -> Gemini's contents -> LlmChunks: the base of Gemini's providers, on any host."""

from typing import Any, Generic

import msgspec
from typing_extensions import TypeVar, override

from tg_base.llm import COUNT, EventDecoder, RouteCall, SdkProvider
from tg_base.llm.gemini.options import GeminiOptions
from tg_base.llm.gemini.request import FEATURES, to_wire
from tg_base.llm.gemini.stream import StreamDecoder, token_count
from tg_schema import TextCompletionRequest

_encode = msgspec.json.Encoder().encode


AnyOptions = TypeVar("AnyOptions", bound=GeminiOptions, default=GeminiOptions)


class Gemini(SdkProvider[AnyOptions], Generic[AnyOptions]):
    """A provider of Gemini; a subclass names the module of its client in `wire`."""

    features = FEATURES

    @override
    def body(self, request: TextCompletionRequest) -> Any:
        return _encode(to_wire(request, self.options))

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder()

    @override
    def count_body(self, request: TextCompletionRequest) -> Any:
        return RouteCall(_encode(self.counted(to_wire(request, self.options))), COUNT)

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        return await self.count_by(request, token_count)

    def counted(self, wire: dict[str, Any]) -> dict[str, Any]:
        """The body of `countTokens` for the body of an answer, as Vertex AI takes it."""
        return {name: value for name, value in wire.items() if name not in {"toolConfig", "generationConfig"}}
