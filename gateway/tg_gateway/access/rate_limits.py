"""Key -> what it may still use in this process: requests and tokens per minute, and concurrent answers."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from typing_extensions import override

from tg_base.client import round_up_to_milliseconds
from tg_base.config import ApiKey, GatewayConfig
from tg_base.protocol import EncodedRequest
from tg_base.telemetry import REFUSALS
from tg_gateway.access.auth import ANYBODY
from tg_gateway.access.key_rights import KeyRights
from tg_gateway.access.token_bucket import TokenBucket
from tg_gateway.access.usage import Usage
from tg_schema import TgError
from tg_schema.errors import BadRequest, RateLimited, Unauthorized
from tg_schema.prompt_size import TOKEN_BYTES, measure_text

MIN_RETRY_AFTER_SECONDS = 1.0
"""The least `retry_after` for a key whose streams are all in use."""
RECENT_REQUESTS = 8
"""Weight of the moving average of request durations: a new one counts for 1 / RECENT_REQUESTS."""
MAX_SIDE_BY_SIDE = 16
"""Requests of one batch that run concurrently; the others wait for one of them to end."""


_WORDS: Final = {
    "streams": "this key has as many answers running as its limit allows; wait for one to end",
    "requests": "this key has reached its limit of requests per minute",
    "tokens": "this key has used or reserved all its tokens per minute",
}


@dataclass(slots=True)
class Spending(AbstractContextManager["Spending"]):
    """One admitted request. On leaving, its reservation is replaced by its actual usage, however it ended.

    Attributes:
        usage: what it has used so far; None if that is not counted.
        requests: the number of requests it counts as.
        reserved: tokens that were reserved for it.
        answers: the number of its answers, which are generated concurrently.
        places: for a batch, how many of its requests may run concurrently.
        begun: when it was admitted.
        asked: whether it was passed on to a service. A request that was refused before that costs its key nothing.
        allowance: what remains of its key's limits; None = the request came without a key.
    """

    usage: Usage | None = None
    requests: int = 1
    reserved: int = 0
    answers: int = 1
    places: int = MAX_SIDE_BY_SIDE
    begun: float = 0.0
    asked: bool = False
    allowance: "_Allowance | None" = None

    @override
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.allowance is not None:
            self.allowance.settle(self, failed=isinstance(error, TgError))


class RateLimits:
    """All keys and their limits, which may change while requests run.

    Args:
        config: the keys, and what is reserved for a request that does not say `max_tokens`.
        time: a monotonic clock, in seconds.

    Attributes:
        exempt: names that stand for requests without a key, which have no limits.
    """

    def __init__(self, config: GatewayConfig, time: Callable[[], float]) -> None:
        self._time = time
        self._allowances: dict[str | None, _Allowance] = {}
        self.update(config)

    def update(self, config: GatewayConfig) -> None:
        """Put edited keys in force. A key's spending and running requests stay counted, even if the key was removed."""
        self._rights = KeyRights(config)
        self._known = frozenset(key.name for key in config.keys)
        self.exempt = frozenset({None, ANYBODY.name}) - self._known
        allowances = {name: kept for name, kept in self._allowances.items() if not kept.settled}
        for key in config.keys:
            allowance = self._allowances.get(key.name) or _Allowance(self._time)
            allowance.change(key, config.reserve_tokens)
            allowances[key.name] = allowance
        self._allowances = allowances

    def admit(self, key: str | None, service: str, *requests: object) -> Spending:
        """Reserve what a request may need.

        Enter the returned `Spending` at once, and leave it when the request is over.

        Do not call it for names that are `exempt`. Each of a batch's requests counts, and each of several answers to
        one.

        Raises:
            RateLimited: the request is over one of the key's limits; `retry_after` says when it will be within them.
            BadRequest: it asks for more answers than the key may have side by side.
            AccessDenied: the key may not use this group of tools, or the request is for something that only an admin
                may do.
            Unauthorized: the key was revoked since its token was checked, for instance while a body was read.
        """
        if key not in self._known:
            raise Unauthorized("the bearer token or key is not known")
        for request in requests:
            self._rights.check(key, service, request)
        return self._allowances[key].take(service, requests)


class _Allowance:
    """What one key has left. Running requests of a key without limits count too: it may get limits later."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._requests: TokenBucket | None = None
        self._tokens: TokenBucket | None = None
        self._streams = 0
        self._reserve = 0
        self._time = time
        self._running = 0
        self._seconds = 0.0
        self._newest = 0.0

    def change(self, key: ApiKey, reserve: int) -> None:
        """Apply the key's edited limits from now on."""
        self._requests = self._resize(self._requests, key.requests_per_minute)
        self._tokens = self._resize(self._tokens, key.tokens_per_minute)
        self._streams = key.streams
        self._reserve = reserve

    @property
    def settled(self) -> bool:
        """Whether nothing runs and nothing is spent, so that the allowance can be forgotten."""
        buckets = (bucket for bucket in (self._requests, self._tokens) if bucket)
        return not self._running and all(bucket.full for bucket in buckets)

    def _resize(self, bucket: TokenBucket | None, per_minute: int) -> TokenBucket | None:
        if bucket is None or not per_minute:
            return TokenBucket(per_minute, self._time) if per_minute else None
        bucket.resize(per_minute)
        return bucket

    def take(self, service: str, requests: Sequence[object]) -> Spending:
        """Reserve all that the requests may need; raises RateLimited or BadRequest, and then reserves nothing."""
        widest = max(map(_most_answers, requests))
        if self._streams and widest > self._streams:
            raise BadRequest(f"n: this key may have {self._streams} answers side by side; ask for fewer (n, best_of)")
        places = min(len(requests), MAX_SIDE_BY_SIDE, self._streams // widest if self._streams else MAX_SIDE_BY_SIDE)
        answers = widest * places
        asked, now = sum(map(_most_answers, requests)), self._time()
        # A request for more than a minute's tokens waits for a full bucket; uncut it would wait for ever.
        most = min(sum(map(self._most_tokens, requests)), self._tokens.size) if self._tokens else 0
        full = self._streams and self._running + answers > self._streams
        # With `streams` answers side by side, one of them ends about every `seconds / streams`. If none has ended for
        # longer than that, answers now take longer: expect as long again.
        rest = max(self._seconds / self._streams, now - self._newest, MIN_RETRY_AFTER_SECONDS) if full else 0.0
        waits = {
            "streams": rest,
            "requests": self._requests.wait(min(asked, self._requests.size)) if self._requests else 0.0,
            "tokens": self._tokens.wait(most) if self._tokens else 0.0,
        }
        # The longest wait: after a shorter one, the request would be refused again for the other reason.
        reason = max(waits, key=lambda reason: waits[reason])
        if waits[reason] > 0:
            REFUSALS.labels(service, reason).inc()
            raise RateLimited(_WORDS[reason], retry_after=round_up_to_milliseconds(waits[reason]))
        self._pay(asked, most, answers)
        self._newest = now
        return Spending(Usage() if most else None, asked, most, answers, places, now, allowance=self)

    def _most_tokens(self, request: object) -> int:
        """What the request may need: an estimate of its prompt, and the most of each of its answers."""
        text = request.text_bytes if isinstance(request, EncodedRequest) else measure_text(request)
        most: int | None = getattr(getattr(request, "sampling", None), "max_tokens", None)
        return text // TOKEN_BYTES + (self._reserve if most is None else max(most, 1)) * _most_answers(request)

    def settle(self, spending: Spending, *, failed: bool) -> None:
        """The request is over."""
        # It was refused before any model got it, for instance by a full queue: it costs nothing.
        if not spending.asked:
            self._pay(-spending.requests, -spending.reserved, -spending.answers)
            return
        self._running -= spending.answers
        took = self._time() - spending.begun
        # A moving average, so that `retry_after` follows how long requests take now.
        self._seconds += (took - self._seconds) / RECENT_REQUESTS if self._seconds else took
        if self._tokens and spending.usage:
            self._tokens.take(spending.usage.tokens(failed=failed) - spending.reserved)

    def _pay(self, requests: int, tokens: int, answers: int) -> None:
        self._running += answers
        if self._requests:
            self._requests.take(requests)
        if self._tokens:
            self._tokens.take(tokens)


def _most_answers(request: object) -> int:
    """How many answers are generated for the request, side by side."""
    sampling = getattr(request, "sampling", None)
    return max(getattr(sampling, "n", None) or 1, getattr(sampling, "best_of", None) or 1)
