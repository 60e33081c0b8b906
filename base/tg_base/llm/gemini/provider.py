"""TextCompletionRequest -> Gemini's contents -> LlmChunks: what Gemini's providers share, wherever it is served."""

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
    """What the configuration may say of a provider of Gemini.

    Attributes:
        thoughts: ask for the thinking's text, which is told apart; only for models that think.
        thinking_budget: tokens that the model may think, 0 = none, -1 = as it likes; the provider's default where
            absent.
    """

    thoughts: bool = False
    thinking_budget: Annotated[int, msgspec.Meta(ge=-1)] | None = None


AnyOptions = TypeVar("AnyOptions", bound=GeminiOptions, default=GeminiOptions)


class Gemini(SdkProvider[AnyOptions], Generic[AnyOptions]):
    """A provider of Gemini; a subclass says how its client is made, as `wire`."""

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
