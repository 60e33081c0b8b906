"""TextCompletionRequest -> Anthropic's Messages -> LlmChunks: what Claude's providers share, whoever hosts it."""

from typing import Annotated, Any, Generic, Literal

import msgspec
from typing_extensions import TypeVar, override

from tg_base.llm import EventDecoder, KeyedConnection, SdkConnection, SdkProvider, UrlOptions
from tg_base.llm.anthropic.request import FEATURES, Defaults, answers_by_tool, to_wire
from tg_base.llm.anthropic.stream import StreamDecoder
from tg_schema import TextCompletionRequest


class ClaudeOptions(UrlOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of a provider of Claude.

    Attributes:
        temperature: for requests that do not say; newer models refuse it.
        max_tokens: the bound on an answer's tokens, for requests that do not say.
        thinking: how many tokens the model may think before it answers, or "adaptive"; it does not where absent.
            The thinking's text is told apart. A request in a round of tool calls is answered without it.
        schema_by: how a schema reaches the model: "format" by structured outputs, "tool" by a tool that it must call,
            for models and places without structured outputs. JSON without a schema is always asked for by a tool.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 8192
    thinking: Annotated[int, msgspec.Meta(ge=1024)] | Literal["adaptive"] | None = None
    schema_by: Literal["format", "tool"] = "format"


AnyOptions = TypeVar("AnyOptions", bound=ClaudeOptions, default=ClaudeOptions)


class Claude(SdkProvider[AnyOptions], Generic[AnyOptions]):
    """A provider of Claude; a subclass says how its client is made, as `wire`."""

    features = FEATURES

    def __init__(self, model: str, options: AnyOptions, connection: KeyedConnection[SdkConnection]) -> None:
        super().__init__(model, options, connection)
        self._defaults = Defaults(
            options.max_tokens, options.temperature, options.thinking, schema_by_tool=options.schema_by == "tool"
        )

    @override
    def body(self, request: TextCompletionRequest) -> Any:
        return msgspec.to_builtins(to_wire(request, self.upstream_model, self._defaults))

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder(by_tool=answers_by_tool(request, self._defaults))
