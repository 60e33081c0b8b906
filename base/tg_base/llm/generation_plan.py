"""TextCompletionRequest -> what the provider is asked, and what the base does in its stead."""

from typing import Final

import msgspec

from tg_schema import Sampling, TextCompletionRequest
from tg_schema.features import Feature

EMULATED_FEATURES: Final[frozenset[Feature]] = frozenset({"n", "strict_tools", "allowed_tools", "parallel_tool_calls"})
"""What the base does for a provider that lacks it."""
_SEED_COUNT = 2**64


class GenerationPlan(msgspec.Struct, frozen=True):
    """How one request is answered.

    Attributes:
        requests: what the provider is asked, all at the same time.
        generated: the answers to generate: those of one request, or one of each.
        ranked: whether only the best of them are returned.
        single_call: whether calls after an answer's first one are dropped.
    """

    requests: tuple[TextCompletionRequest, ...]
    generated: int = 1
    ranked: bool = False
    single_call: bool = False

    @classmethod
    def of(cls, request: TextCompletionRequest, native: frozenset[Feature]) -> "GenerationPlan":
        """The plan of a request for a provider that has the features `native` itself."""
        single_call = request.parallel_tool_calls is False and "parallel_tool_calls" not in native
        request = _with_tools(request, native)
        sampling = request.sampling
        if sampling is None or (sampling.n or 1) == (sampling.best_of or 1) == 1:
            return cls((request,), single_call=single_call)
        ranks = "best_of" in native and (request.answers == 1 or "n" in native)
        ranked = "best_of" in sampling.features and not ranks
        if ranked:
            # The ranking needs log-probabilities, also where the client did not ask for any.
            sampling = msgspec.structs.replace(sampling, n=sampling.best_of, logprobs=sampling.logprobs or 0)
        if not ranks:
            sampling = msgspec.structs.replace(sampling, best_of=None)
        count = sampling.n or 1
        asked = (sampling,) if count == 1 or "n" in native else [_numbered(sampling, index) for index in range(count)]
        requests = tuple(msgspec.structs.replace(request, sampling=each) for each in asked)
        return cls(requests, generated=count, ranked=ranked, single_call=single_call)


def _numbered(sampling: Sampling, index: int) -> Sampling:
    """The sampling of one of several answers: each has a seed of its own."""
    # Within a signed 64-bit number, as the record has it.
    seed = (
        None if sampling.seed is None else (sampling.seed + index + _SEED_COUNT // 2) % _SEED_COUNT - _SEED_COUNT // 2
    )
    return msgspec.structs.replace(sampling, n=None, seed=seed)


def _with_tools(request: TextCompletionRequest, native: frozenset[Feature]) -> TextCompletionRequest:
    """The request without the fields about tools that the provider does not know."""
    tools = request.tools
    if request.allowed_tools and "allowed_tools" not in native:
        allowed = frozenset(request.allowed_tools)
        tools = tuple(tool for tool in tools if tool.name in allowed)
        request = msgspec.structs.replace(request, tools=tools, allowed_tools=())
    if "strict_tools" not in native and any(tool.strict for tool in tools):
        tools = tuple(msgspec.structs.replace(tool, strict=False) for tool in tools)
        request = msgspec.structs.replace(request, tools=tools)
    if request.parallel_tool_calls is not None and "parallel_tool_calls" not in native:
        request = msgspec.structs.replace(request, parallel_tool_calls=None)
    return request
