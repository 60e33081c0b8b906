"""Door or pool provider -> scheduler: the facts about a request that the scheduler gets."""

from typing import Self

from msgspec import Struct

from tg_picker.core.interface.fingerprint import NO_FINGERPRINT, Fingerprint

MAX_TOKENS = 100_000_000
"""A higher count is implausible and is ignored: it would distort the sum of a histogram for ever."""


class Objective(Struct, frozen=True):
    """The latency objectives of a route. None = no objective.

    Attributes:
        first_token: seconds from the request to its first token.
        output_token: seconds from one token to the next.
        quantile: the share of requests whose first token must be in time, above 0 and below 1.
        output_quantile: the same share for the tokens after the first.
    """

    first_token: float | None = None
    output_token: float | None = None
    quantile: float = 0.99
    output_quantile: float = 0.99


class InstanceRequest(Struct, frozen=True):
    """A request as the scheduler sees it.

    Attributes:
        model: the base model; "" = any, because it is not known or the request names none.
        adapter: the LoRA adapter; None = the base model itself.
        prompt_tokens: tokens of the prompt, counted or estimated.
        prefix: the prefix of the prompt, salted with model and adapter.
        priority: higher is served first; requests below 0 may be refused to protect the others.
        objective: the latency objectives of its route; None = none.
        expected_tokens: tokens of the answer, if they can be estimated.
        max_tokens: the longest answer that the request allows; None = it sets no limit.
        flow: the client or group on whose account it counts in fair queueing.
        route: the route that sets the objectives; "" = the request sets them.
        max_wait: most seconds that it waits for a server; None = as long as the pool allows.
        streamed: whether its answer comes token by token. The first token of an answer that comes whole cannot be
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
    """A server's token counts of a finished request. None = not reported.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: tokens of the prompt that came from the server's prefix cache.
        output_tokens: tokens of the answer.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None

    @classmethod
    def reported(cls, prompt_tokens: int | None, cached_tokens: int | None, output_tokens: int | None) -> Self:
        """The counts that a server reported, without implausible ones."""
        return cls(
            prompt_tokens if prompt_tokens is not None and 0 <= prompt_tokens <= MAX_TOKENS else None,
            cached_tokens if cached_tokens is not None and 0 <= cached_tokens <= MAX_TOKENS else None,
            output_tokens if output_tokens is not None and 0 <= output_tokens <= MAX_TOKENS else None,
        )
