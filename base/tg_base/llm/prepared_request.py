"""JSON of a large request -> the provider's request, made in a worker process; the processor keeps an outline.

To decode a request of 10 MB, check it, and write it in the provider's format takes up to half a second.
"""

from typing import Any, Final

import msgspec

from tg_base.llm.large_request import RequestParts, read_request, split_request
from tg_base.llm.request_plan import GenerationPlan
from tg_base.telemetry import trace
from tg_schema import TextCompletionRequest

COUNT: Final = "count-tokens"
COUNT_FEATURE: Final = "count_tokens"
COMPLETION: Final = frozenset({None, "", "completion"})
"""The operation that generates, by all its names."""


class PreparedRequest(TextCompletionRequest, frozen=True):
    """A checked request without its prompt and its tools, which only the provider needs.

    Attributes:
        sent: the argument of the client's `post`.
        plan: the plan for the answer; its requests are prepared as well.
    """

    sent: Any = None
    plan: GenerationPlan | None = None


def prepare_request(
    kind: Any, model: str, options: Any, data: bytes, caller: str | None = None
) -> PreparedRequest | RequestParts:
    """Prepare a request, in a worker process. A request for anything but an answer is only decoded and checked.

    Args:
        kind: the provider's class, an `SdkProvider`.
        model: the model's name, as for the provider.
        options: the options, as for the provider.
        data: the JSON of the request.
        caller: see `Span`.

    Raises:
        Unreadable: the JSON is not a request.
        TgError: the provider refuses it.
    """
    trace.name_caller(caller)
    request = read_request(data)
    # The provider has no connection here: a worker sends nothing.
    provider = kind(model, options, None)
    if request.operation == COUNT and COUNT_FEATURE in provider.native_features:
        request = provider.check(request)
        return _outline(request, sent=provider.count_body(request))
    if request.operation not in COMPLETION:
        return split_request(request)
    request = provider.check(request)
    if provider.needs_prompt(request):
        return split_request(request)
    plan = GenerationPlan.of(request, provider.native_features)
    sent = [provider.body(each) for each in plan.requests]
    # A body of many objects would hold up the processor as long as the request itself.
    if not all(isinstance(getattr(each, "body", each), bytes) for each in sent):
        return split_request(request)
    outlines = tuple(_outline(each, one) for each, one in zip(plan.requests, sent, strict=True))
    return _outline(request, plan=msgspec.structs.replace(plan, requests=outlines))


def _outline(request: TextCompletionRequest, sent: Any = None, plan: GenerationPlan | None = None) -> PreparedRequest:
    kept = {name: getattr(request, name) for name in _KEPT}
    strict = tuple(tool for tool in request.tools if tool.strict)
    # Token ids are as large as a text, so keep only whether there were any: that decides how the answer is read.
    raw = request.raw or bool(request.prompt_ids)
    return PreparedRequest(**kept, raw=raw, tools=strict, sent=sent, plan=plan)


_KEPT: Final = (
    "streaming",
    "model",
    "sampling",
    "response_format",
    "schema",
    "operation",
    "parallel_tool_calls",
    "adapter",
    "user",
    "continuation",
)
"""Fields that are needed besides the provider's request, so the outline keeps them."""
