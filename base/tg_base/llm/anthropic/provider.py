"""TextCompletionRequest -> Anthropic's Messages -> LlmChunks: the base of Claude's providers, on any host."""

from typing import Annotated, Any, Generic, Literal

import msgspec
from typing_extensions import TypeVar, override

from tg_base.llm import EventDecoder, KeyedConnection, SdkConnection, SdkProvider, UrlOptions
from tg_base.llm.anthropic.request import FEATURES, Defaults, answers_by_tool, to_wire
from tg_base.llm.anthropic.stream import StreamDecoder
from tg_schema import TextCompletionRequest


class ClaudeOptions(UrlOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of a provider of Claude.

    Attributes:
        temperature: the default for requests without one; newer models refuse it.
        max_tokens: the default limit of an answer's tokens.
        thinking: the budget of thinking tokens before an answer, or "adaptive"; None = no thinking. Thinking text is
            returned as `reasoning`. A request that follows tool calls is answered without thinking.
        schema_by: how a schema is enforced: "format" by structured outputs, "tool" by a forced tool call, for models
            and hosts without structured outputs. JSON without a schema is always requested by a tool.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 8192
    thinking: Annotated[int, msgspec.Meta(ge=1024)] | Literal["adaptive"] | None = None
    schema_by: Literal["format", "tool"] = "format"


AnyOptions = TypeVar("AnyOptions", bound=ClaudeOptions, default=ClaudeOptions)


class Claude(SdkProvider[AnyOptions], Generic[AnyOptions]):
    """A provider of Claude; a subclass names the module of its client in `wire`."""

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
