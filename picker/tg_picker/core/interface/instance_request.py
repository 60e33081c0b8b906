"""Door or pool provider -> scheduler: what the scheduler is told of a request."""

from typing import Self

from msgspec import Struct

from tg_picker.core.interface.fingerprint import NO_FINGERPRINT, Fingerprint

MAX_TOKENS = 100_000_000
"""A higher count is implausible and is ignored: it would spoil the sums of a histogram for ever."""


class Objective(Struct, frozen=True):
    """What a route promises to its requests. None = not promised.

    Attributes:
        first_token: seconds from the request to its first token.
        output_token: seconds from a token to the next.
        quantile: the share of requests whose first token must come in time, above 0 and below 1.
        output_quantile: the same of the tokens after it.
    """

    first_token: float | None = None
    output_token: float | None = None
    quantile: float = 0.99
    output_quantile: float = 0.99


class InstanceRequest(Struct, frozen=True):
    """A request as the scheduler sees it.

    Attributes:
        model: the base model; "" = any: it is not known, or the request names none.
        adapter: the LoRA adapter; None = the base model itself.
        prompt_tokens: tokens of the prompt, counted or estimated.
        prefix: the prefix of the prompt, salted with model and adapter.
        priority: higher is served first; below 0 may be refused to protect the others.
        objective: the latency objective of its route; None = it has none.
        expected_tokens: tokens of the answer, if something is known of them.
        max_tokens: the longest answer that it allows; None = it does not say.
        flow: the client or group that it counts for in fair queueing.
        route: the route that sets the objective; "" = the request sets it.
        max_wait: seconds for which it waits for a server at most; None = as long as any.
        streamed: whether its answer comes token by token. For an answer that comes whole, the first token is not
            observable.
    """

    model: str = ""
    adapter: str | None = None
    prompt_tokens: int = 0
    prefix: Fingerprint = NO_FINGERPRINT
    priority: int = 0
    objective: Objective | None = None
    expected_tokens: int | None = None
    max_tokens: int | None = None
    flow: str = "default-flow"
    route: str = ""
    streamed: bool = True
    max_wait: float | None = None


class InstanceUsage(Struct, frozen=True):
    """What a server counted of a finished request. None = not told.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: tokens of the prompt, taken from the server's prefix cache.
        output_tokens: tokens of the answer.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None

    @classmethod
    def reported(cls, prompt_tokens: int | None, cached_tokens: int | None, output_tokens: int | None) -> Self:
        """What a server told, without what cannot be."""
        return cls(
            prompt_tokens if prompt_tokens is not None and 0 <= prompt_tokens <= MAX_TOKENS else None,
            cached_tokens if cached_tokens is not None and 0 <= cached_tokens <= MAX_TOKENS else None,
            output_tokens if output_tokens is not None and 0 <= output_tokens <= MAX_TOKENS else None,
        )
