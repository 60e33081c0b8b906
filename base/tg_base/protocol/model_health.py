"""Outcomes of requests -> which models cool down, and which may be asked: in their processors and in requestors.

A model cools down for its `Retry-After`, or when too many of its last answers were failures. After that, one request
tries it (half-open): if it is answered, the model is as before; otherwise it cools down for twice as long.
"""

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Final

from tg_schema import TgError

WINDOW_SECONDS: Final = 30.0
"""Older outcomes do not count."""
MIN_FAILURES: Final = 3
"""A model does not cool down after fewer failures in the window, unless it said when to come back."""
MAX_SHARE: Final = 0.5
"""The share of failures in the window at which a model cools down."""
COOLING_SECONDS: Final = 30.0
"""The first time; it doubles with each failed probe."""
MAX_COOLING_SECONDS: Final = 600.0
"""The longest time, also for a `Retry-After`."""
MAX_OUTCOMES: Final = 100
"""Outcomes of a model that are kept."""
FAILURES: Final = frozenset(
    {"rate-limited", "unavailable", "timeout", "incomplete-stream", "protocol", "provider-auth", "bus"}
)
"""Types of errors that count against a model. The others are the request's own, and show that it answers."""


@dataclass(slots=True)
class _State:
    outcomes: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=MAX_OUTCOMES))
    until: float | None = None
    seconds: float = COOLING_SECONDS
    reason: str = ""
    probing: bool = False


class ModelHealth:
    """What one process knows of models, by their queues or ids.

    A requestor knows how those answered that its routes have asked. A processor knows how its own answered to all
    requestors, and announces it.
    """

    def __init__(self) -> None:
        self._states = defaultdict[str, _State](_State)

    def begin(self, queue: str) -> bool:
        """Whether a request may ask it now; its outcome, or `leave`, must follow. A cool model gets one request."""
        state = self._states[queue]
        if state.until is None:
            return True
        if state.probing or self.wait(queue) > 0:
            return False
        state.probing = True
        return True

    def leave(self, queue: str) -> None:
        """The request that tried a cool model has ended without an outcome."""
        self._states[queue].probing = False

    def wait(self, queue: str) -> float:
        """Seconds until it may be tried; 0 = it does not cool down, or not any more."""
        return max(0.0, (self._states[queue].until or 0.0) - _now())

    def explain(self, queue: str) -> str:
        """The type of the error for which it cools down or is being tried; "" = it is asked like any other."""
        return self._states[queue].reason

    def note(self, queue: str, error: TgError | None, *, trial: bool) -> None:
        """How an answer of it began: with a record, or as this error; `trial` is whether `begin` let it try the model.

        While the model cools down, only a trial counts: the others were asked before, or for want of a better one.
        """
        state = self._states[queue]
        if state.until is not None and not trial:
            return
        failed, now, state.probing = error is not None and error.type in FAILURES, _now(), False
        if not failed:
            state.until, state.seconds, state.reason = None, COOLING_SECONDS, ""
        state.outcomes.append((now, failed))
        if error is not None and failed and (trial or error.retry_after is not None or self._is_bad(state)):
            state.reason, state.seconds = error.type, state.seconds * 2 if trial else state.seconds
            seconds = state.seconds if error.retry_after is None else error.retry_after
            state.until = now + min(seconds, MAX_COOLING_SECONDS)
            state.outcomes.clear()

    def observe(self, model: str, error: TgError | None, begun: float) -> None:
        """How any request ended, where all are seen: an answer ends the time at once.

        Args:
            model: its id.
            error: how the request failed; None = it was answered.
            begun: when it was begun, by the loop's clock. A failure is that of a trial only if the time was over then.
        """
        until = self._states[model].until
        failed = error is not None and error.type in FAILURES
        self.note(model, error, trial=not failed or (until is not None and until <= begun))

    def hear(self, queue: str, until: float, reason: str) -> None:
        """All processors of the queue have announced that their model cools down until then, by the loop's clock."""
        state = self._states[queue]
        if until > max(_now(), state.until or 0.0):
            state.until, state.reason = until, reason

    @staticmethod
    def _is_bad(state: _State) -> bool:
        since = _now() - WINDOW_SECONDS
        recent = [failed for at, failed in state.outcomes if at >= since]
        return sum(recent) >= max(MIN_FAILURES, MAX_SHARE * len(recent))


def _now() -> float:
    return asyncio.get_running_loop().time()
