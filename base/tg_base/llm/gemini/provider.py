"""TextCompletionRequest -> Gemini's contents -> LlmChunks: the base of Gemini's providers, on any host."""

from collections.abc import Awaitable, Callable
from typing import Any, Generic

from typing_extensions import TypeVar, override

from tg_base.llm import ANSWERS, COUNT, EMBEDDINGS, MODELS, EventDecoder, RouteCall, SdkProvider
from tg_base.llm.gemini.options import GeminiOptions
from tg_base.llm.gemini.request import FEATURES, to_wire
from tg_base.llm.gemini.stream import StreamDecoder, token_count
from tg_schema import TextCompletionRequest, encode

AnyOptions = TypeVar("AnyOptions", bound=GeminiOptions, default=GeminiOptions)


class Gemini(SdkProvider[AnyOptions], Generic[AnyOptions]):
    """A provider of Gemini; a subclass names the module of its client in `wire`."""

    features = FEATURES

    @override
    def body(self, request: TextCompletionRequest) -> Any:
        return encode(to_wire(request, self.options))

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder()

    @override
    def count_body(self, request: TextCompletionRequest) -> Any:
        return RouteCall(encode(self.counted(to_wire(request, self.options))), COUNT)

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        return await self.count_by(request, token_count)

    def counted(self, wire: dict[str, Any]) -> dict[str, Any]:
        """The body of `countTokens` for the body of an answer, as Vertex AI takes it."""
        return {name: value for name, value in wire.items() if name not in {"toolConfig", "generationConfig"}}


def find_calls(client: Any, model: str) -> dict[str, Callable[[], Awaitable[object]]]:
    """The methods of an SDK client that a `PreparedConnection` calls; the contents are placeholders.

    The SDK's own reader fails on keep-alives, reports a stream without its terminal marker as complete, and sleeps for
    seconds after a failure.
    """
    models = client.aio.models

    async def answer() -> object:
        return await anext(await models.generate_content_stream(model=model, contents="-"))

    return {
        ANSWERS: answer,
        COUNT: lambda: models.count_tokens(model=model, contents="-"),
        EMBEDDINGS: lambda: models.embed_content(model=model, contents="-"),
        # The API's largest page, so that one request lists all models.
        MODELS: lambda: models.list(config={"page_size": 1000}),
    }
