"""JSON of a large request -> the provider's request, made in a worker process; the processor keeps an outline.

To decode a request of 10 MB, check it, write it in the provider's format and let an SDK encode it takes up to a second.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from tg_base.llm.large_request import RequestParts, read_request, split_request
from tg_base.llm.request_plan import GenerationPlan
from tg_base.telemetry import trace
from tg_schema import Message, TextCompletionRequest

COUNT: Final = "count-tokens"
COUNT_FEATURE: Final = "count_tokens"
COMPLETION: Final = frozenset({None, "", "completion"})
"""The operation that generates, by all its names."""


class PreparedRequest(TextCompletionRequest, frozen=True):
    """A checked request without its prompt and its tools, which only the provider needs.

    Attributes:
        sent: the argument of the client's `post`.
        plan: how it is answered; its requests are prepared as well.
    """

    sent: Any = None
    plan: GenerationPlan | None = None


def prepare_request(
    kind: Any, model: str, options: Any, data: bytes, caller: str | None = None
) -> PreparedRequest | RequestParts:
    """Prepare a request, in a worker process. One for another operation than an answer is only decoded and checked.

    Args:
        kind: the provider's class, an `SdkProvider`.
        model: as the provider's.
        options: as the provider's.
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
        (counted,) = _record_all(kind, provider.count_body, model, options, (request,))
        return _outline(request, sent=counted)
    if request.operation not in COMPLETION:
        return split_request(request)
    request = provider.check(request)
    if provider.needs_prompt(request):
        return split_request(request)
    plan = GenerationPlan.of(request, provider.native_features)
    sent = _record_all(kind, provider.body, model, options, plan.requests)
    outlines = tuple(_outline(each, one) for each, one in zip(plan.requests, sent, strict=True))
    return _outline(request, plan=msgspec.structs.replace(plan, requests=outlines))


def _record_all(
    kind: Any,
    make: Callable[[TextCompletionRequest], Any],
    model: str,
    options: Any,
    requests: Sequence[TextCompletionRequest],
) -> list[Any]:
    """The provider's requests for these; `make` turns each into an argument of `post`."""
    sent = [make(each) for each in requests]
    # Encoded already, alone or as the body of a call: no SDK encodes it.
    if all(isinstance(getattr(each, "body", each), bytes) for each in sent):
        return sent
    return _runner().run(_record(kind, make(_stand_in(requests[0])), model, options, sent))


@cache
def _runner() -> asyncio.Runner:
    """The event loop of this worker process."""
    # One loop for all calls: an SDK's client stays bound to the loop of its first use.
    return asyncio.Runner()


async def _record(kind: Any, small: Any, model: str, options: Any, sent: list[Any]) -> list[Any]:
    """The requests that the provider's SDK makes of these arguments."""
    name = (kind, model, options)
    if _opened.get("name") != name:
        # A worker works for one provider, whose SDK takes a second to be imported and opened.
        _opened.update(name=name, provider=await kind.open(model, options))
    return [await _opened["provider"].record(each, small) for each in sent]


_opened: Final[dict[str, Any]] = {}
"""The provider whose SDK makes the requests of this worker process, and its name."""


def _stand_in(request: TextCompletionRequest) -> TextCompletionRequest:
    """A small request to the same address. Of an API's own fields, which may be large, it keeps only the headers."""
    foreign, sampling = request.foreign, request.sampling
    return msgspec.structs.replace(
        request, messages=(Message("user", "-"),), system=None, prompt=None, tools=(), tool_choice=None,
        allowed_tools=(), parallel_tool_calls=None,
        foreign=None if foreign is None else msgspec.structs.replace(foreign, fields={}, tools=()),
        sampling=None if sampling is None else msgspec.structs.replace(sampling, logit_bias=None),
    )  # fmt: skip


def _outline(request: TextCompletionRequest, sent: Any = None, plan: GenerationPlan | None = None) -> PreparedRequest:
    kept = {name: getattr(request, name) for name in _KEPT}
    strict = tuple(tool for tool in request.tools if tool.strict)
    # Ids are as large as a text; that there were some says how the answer is read.
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
)
"""Fields that are needed besides the provider's request, so the outline keeps them."""
