"""TextCompletionRequest -> Gemini's contents -> LlmChunks: the base of Gemini's providers, on any host."""

from typing import Annotated, Any, Generic

import msgspec
from typing_extensions import TypeVar, override

from tg_base.llm import EventDecoder, KeyedConnection, SdkConnection, SdkProvider, UrlOptions
from tg_base.llm.gemini.request import FEATURES, Defaults, to_wire
from tg_base.llm.gemini.stream import StreamDecoder
from tg_base.llm.gemini.thought_signatures import ThoughtSignatures
from tg_schema import TextCompletionRequest

_encode = msgspec.json.Encoder().encode


class GeminiOptions(UrlOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of a provider of Gemini.

    Attributes:
        thoughts: request the thinking text, which is returned as `reasoning`; only for thinking models.
        thinking_budget: maximum thinking tokens; 0 = none, -1 = the model decides, None = the provider's default.
    """

    thoughts: bool = False
    thinking_budget: Annotated[int, msgspec.Meta(ge=-1)] | None = None


AnyOptions = TypeVar("AnyOptions", bound=GeminiOptions, default=GeminiOptions)


class Gemini(SdkProvider[AnyOptions], Generic[AnyOptions]):
    """A provider of Gemini; a subclass names the module of its client in `wire`."""

    features = FEATURES

    def __init__(self, model: str, options: AnyOptions, connection: KeyedConnection[SdkConnection]) -> None:
        super().__init__(model, options, connection)
        self._signatures = ThoughtSignatures()
        self._defaults = Defaults(options.max_tokens, options.temperature, options.thoughts, options.thinking_budget)

    @override
    def body(self, request: TextCompletionRequest) -> Any:
        return _encode(to_wire(request, self._defaults, self._signatures))

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder(self._signatures)
