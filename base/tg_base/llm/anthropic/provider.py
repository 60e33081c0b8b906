"""TextCompletionRequest -> Anthropic's Messages -> LlmChunks: the base of Claude's providers, on any host."""

from typing import Annotated, Any, Generic, Literal

import msgspec
from typing_extensions import TypeVar, override

from tg_base.llm import (
    ANSWERS,
    COUNT,
    AddressOptions,
    EventDecoder,
    KeyedConnection,
    RouteCall,
    SdkConnection,
    SdkProvider,
)
from tg_base.llm.anthropic.request import (
    COUNTED_FIELDS,
    FEATURES,
    add_foreign_fields,
    answers_by_tool,
    betas,
    to_wire,
)
from tg_base.llm.anthropic.stream import StreamDecoder, token_count
from tg_base.llm.anthropic.thinking import Defaults
from tg_schema import TextCompletionRequest

_encode = msgspec.json.Encoder().encode


class ClaudeOptions(AddressOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of a provider of Claude.

    Attributes:
        temperature: the default for requests without one; newer models refuse it.
        max_tokens: the default limit of an answer's tokens.
        thinking: the budget of thinking tokens before an answer, or "adaptive"; None = no thinking. Thinking text is
            returned as `reasoning` with a `signature`. With a budget, a request after tool calls is answered without
            thinking if it does not bring back the thinking before them.
        schema_by: how a schema is enforced: "format" by structured outputs, "tool" by a forced tool call, for models
            and hosts without structured outputs. JSON without a schema is always requested by a tool.
        effort_by: how a request's effort is sent: "effort" with adaptive thinking, or "budget" for models without it.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 8192
    thinking: Annotated[int, msgspec.Meta(ge=1024)] | Literal["adaptive"] | None = None
    schema_by: Literal["format", "tool"] = "format"
    effort_by: Literal["effort", "budget"] = "effort"


AnyOptions = TypeVar("AnyOptions", bound=ClaudeOptions, default=ClaudeOptions)


class Claude(SdkProvider[AnyOptions], Generic[AnyOptions]):
    """A provider of Claude; a subclass names the module of its client in `wire`."""

    features = FEATURES

    def __init__(self, model: str, options: AnyOptions, connection: KeyedConnection[SdkConnection]) -> None:
        super().__init__(model, options, connection)
        self._defaults = Defaults(
            options.max_tokens,
            options.temperature,
            options.thinking,
            schema_by_tool=options.schema_by == "tool",
            effort_by_budget=options.effort_by == "budget",
        )

    @override
    def body(self, request: TextCompletionRequest) -> Any:
        return self.call(ANSWERS, self.fields(request), request)

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder(by_tool=answers_by_tool(request, self._defaults))

    @override
    def count_body(self, request: TextCompletionRequest) -> Any:
        fields = {name: value for name, value in self.fields(request).items() if name in COUNTED_FIELDS}
        return self.call(COUNT, fields, request)

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        return await self.count_by(request, token_count)

    def fields(self, request: TextCompletionRequest) -> dict[str, Any]:
        """The body of a request for an answer. Raises as `body`."""
        return add_foreign_fields(to_wire(request, self.upstream_model, self._defaults), request)

    def call(self, route: str, fields: dict[str, Any], request: TextCompletionRequest) -> RouteCall:
        """What the client's `post` gets: a body, and the beta versions that the request asks for."""
        asked = ",".join(betas(request))
        return RouteCall(_encode(fields), route, (("anthropic-beta", asked),) if asked else ())
