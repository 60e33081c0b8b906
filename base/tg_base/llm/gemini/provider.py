"""TextCompletionRequest -> Gemini's contents -> LlmChunks: the base of Gemini's providers, on any host."""

from typing import Annotated, Any, Generic, Literal

import msgspec
from typing_extensions import TypeVar, override

from tg_base.llm import COUNT, AddressOptions, EventDecoder, KeyedConnection, RouteCall, SdkConnection, SdkProvider
from tg_base.llm.gemini.request import FEATURES, Defaults, to_wire
from tg_base.llm.gemini.stream import StreamDecoder, token_count
from tg_schema import TextCompletionRequest

_encode = msgspec.json.Encoder().encode


class GeminiOptions(AddressOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of a provider of Gemini.

    Attributes:
        thoughts: request the thinking text, which is returned as `reasoning`; only for thinking models.
        effort_by: how a request's effort is sent: as a thinking level, or as a budget for models without levels.
        thinking_budget: maximum thinking tokens; 0 = none, -1 = the model decides, None = the provider's default.
    """

    thoughts: bool = False
    thinking_budget: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    effort_by: Literal["level", "budget"] = "level"


AnyOptions = TypeVar("AnyOptions", bound=GeminiOptions, default=GeminiOptions)


class Gemini(SdkProvider[AnyOptions], Generic[AnyOptions]):
    """A provider of Gemini; a subclass names the module of its client in `wire`."""

    features = FEATURES

    def __init__(self, model: str, options: AnyOptions, connection: KeyedConnection[SdkConnection]) -> None:
        super().__init__(model, options, connection)
        self._defaults = Defaults(
            options.max_tokens,
            options.temperature,
            options.thoughts,
            options.thinking_budget,
            effort_by_budget=options.effort_by == "budget",
        )

    @override
    def body(self, request: TextCompletionRequest) -> Any:
        return _encode(to_wire(request, self._defaults))

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder()

    @override
    def count_body(self, request: TextCompletionRequest) -> Any:
        return RouteCall(_encode(self.counted(to_wire(request, self._defaults))), COUNT)

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        return await self.count_by(request, token_count)

    def counted(self, wire: dict[str, Any]) -> dict[str, Any]:
        """The body of `countTokens` for the body of an answer, as Vertex AI takes it."""
        return {name: value for name, value in wire.items() if name not in {"toolConfig", "generationConfig"}}
