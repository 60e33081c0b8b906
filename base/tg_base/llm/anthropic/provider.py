"""TextCompletionRequest -> Anthropic's Messages -> LlmChunks: the base of Claude's providers, on any host."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic

from typing_extensions import TypeVar, override

from tg_base.llm import (
    ANSWERS,
    COUNT,
    MODELS,
    EventDecoder,
    RouteCall,
    SdkProvider,
)
from tg_base.llm.anthropic.options import ClaudeOptions
from tg_base.llm.anthropic.request import (
    COUNTED_FIELDS,
    FEATURES,
    add_foreign_fields,
    answers_by_tool,
    betas,
    to_wire,
)
from tg_base.llm.anthropic.stream import StreamDecoder, token_count
from tg_schema import TextCompletionRequest, encode

AnyOptions = TypeVar("AnyOptions", bound=ClaudeOptions, default=ClaudeOptions)


class Claude(SdkProvider[AnyOptions], Generic[AnyOptions]):
    """A provider of Claude; a subclass names the module of its client in `wire`."""

    features = FEATURES

    @override
    def body(self, request: TextCompletionRequest) -> Any:
        return self.call(ANSWERS, self.fields(request), request)

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder(by_tool=answers_by_tool(request, self.options))

    @override
    def count_body(self, request: TextCompletionRequest) -> Any:
        fields = {name: value for name, value in self.fields(request).items() if name in COUNTED_FIELDS}
        return self.call(COUNT, fields, request)

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        return await self.count_by(request, token_count)

    def fields(self, request: TextCompletionRequest) -> dict[str, Any]:
        """The body of a request for an answer. Raises as `body`."""
        return add_foreign_fields(to_wire(request, self.upstream_model, self.options), request)

    def call(self, route: str, fields: dict[str, Any], request: TextCompletionRequest) -> RouteCall:
        """The argument of the client's `post`: a body, and the beta versions that the request asks for."""
        asked = ",".join(betas(request))
        return RouteCall(encode(fields), route, (("anthropic-beta", asked),) if asked else ())


def find_calls(client: Any, model: str) -> dict[str, Callable[[], Awaitable[object]]]:
    """The calls of an SDK client for a `PreparedConnection`, for Anthropic's own API or another host of Claude."""
    # Some hosts have the model in the address.
    post = partial(client.post, body={"model": model, "stream": True}, cast_to=object)
    return {
        ANSWERS: partial(post, "/v1/messages"),
        COUNT: partial(post, "/v1/messages/count_tokens"),
        # The API's largest page, so that one request lists all models.
        MODELS: partial(client.get, "/v1/models", cast_to=object, options={"params": {"limit": 1000}}),
    }
