"""Outcomes of requests -> which models cool down, and which may be asked: in their processors and in requestors.

A model cools down for its `Retry-After`, when half of its answers were failures, or its last four although hardly any
before. After that, one request tries it (half-open): if it is answered, the model is as before; otherwise it cools
down for twice as long.
"""

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Final

from tg_schema import TgError

WINDOW_SECONDS: Final = 30.0
"""Older outcomes do not count."""
MIN_FAILURES: Final = 3
"""A model does not cool down after fewer failures in the window, unless its error said when to try again."""
FAILURES_IN_TURN: Final = 4
"""Failures in a row after which a model that was well cools down: its many earlier answers would outweigh them for a
long time."""
WELL_SHARE: Final = 0.05
"""The share of failures up to which a model was well. If more requests fail, four failures in a row come by chance."""
MAX_SHARE: Final = 0.5
"""The share of failures in the window at which a model cools down."""
COOLING_SECONDS: Final = 30.0
"""How long a model cools down at first; the time doubles with each failed trial."""
MAX_COOLING_SECONDS: Final = 600.0
"""The longest time that a model cools down, also for a `Retry-After`."""
MAX_OUTCOMES: Final = 100
"""Outcomes of a model that are kept."""
FAILURES: Final = frozenset(
    {"rate-limited", "unavailable", "timeout", "incomplete-stream", "protocol", "provider-auth", "bus"}
)
"""Types of errors that count against a model. The others are the request's own, and show that it answers."""


@dataclass(slots=True)
class _State:
    """`until` and `reason` were observed here, `heard_until` and `heard_reason` were announced by processors."""

    outcomes: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=MAX_OUTCOMES))
    until: float | None = None
    seconds: float = COOLING_SECONDS
    reason: str = ""
    heard_until: float = 0.0
    heard_reason: str = ""
    probing: bool = False


class ModelHealth:
    """What one process knows about the health of models, by their queues or ids.

    A requestor knows how the models of its routes answered it. A processor knows how its own model answered all
    requestors, and announces that.
    """

    def __init__(self) -> None:
        self._states = defaultdict[str, _State](_State)

    def begin(self, queue: str) -> bool:
        """Whether a request may ask the model now; its outcome, or `leave`, must follow.

        After the model has cooled down, a single request may try it.
        """
        state = self._states[queue]
        if not self.explain(queue):
            return True
        if state.probing or self.wait(queue) > 0:
            return False
        state.probing = True
        return True

    def leave(self, queue: str) -> None:
        """The request that tried the model after it had cooled down has ended without an outcome."""
        self._states[queue].probing = False

    def wait(self, queue: str) -> float:
        """Seconds until the model may be tried; 0 = it is not cooling down now."""
        state = self._states[queue]
        return max(0.0, max(state.until or 0.0, state.heard_until) - _now())

    def explain(self, queue: str) -> str:
        """The type of the error for which the model cools down or is being tried; "" = it is asked like any other."""
        state = self._states[queue]
        return state.reason or state.heard_reason

    def note(self, queue: str, error: TgError | None, *, trial: bool) -> None:
        """Note how an answer of the model began: with a record, or with this error.

        `trial` is whether `begin` let the request try a model that had cooled down.

        While the model cools down, only a trial counts: other requests were sent before, or no better model was left.
        """
        state = self._states[queue]
        if state.until is not None and not trial:
            return
        failed, now, state.probing = error is not None and error.type in FAILURES, _now(), False
        if not failed:
            state.until, state.seconds, state.reason = None, COOLING_SECONDS, ""
        state.outcomes.append((now, failed))
        if error is None or not failed:
            return
        # A `Retry-After` that is no time to wait, such as 0 or NaN, counts as absent.
        given = error.retry_after if error.retry_after is not None and error.retry_after > 0 else None
        if trial or given is not None or self._is_bad(state):
            state.reason, state.seconds = error.type, state.seconds * 2 if trial else state.seconds
            state.until = now + min(state.seconds if given is None else given, MAX_COOLING_SECONDS)
            state.outcomes.clear()

    def observe(self, model: str, error: TgError | None, begun: float) -> bool:
        """Note how any request ended, in the process that sees all of them: an answer ends the cooling at once.

        An error that is no failure proves nothing here: many such errors are raised before the model is asked.

        Args:
            model: its id.
            error: how the request failed; None = it was answered.
            begun: when it was begun, by the loop's clock. Its failure is a trial's only if the cooling was over then.

        Returns:
            Whether the time that the model cools down has changed.
        """
        state = self._states[model]
        before = state.until
        if error is None or error.type in FAILURES:
            self.note(model, error, trial=error is None or (before is not None and before <= begun))
        return state.until != before

    def hear(self, queue: str, until: float, reason: str) -> None:
        """Note the current announcements of all processors of the queue.

        Args:
            queue: their queue.
            until: the model cools down until then, by the loop's clock; 0 = not all of them say so.
            reason: the type of the error for which it cools down or is tried; "" = it is asked like any other.
        """
        state = self._states[queue]
        state.heard_until, state.heard_reason = min(until, _now() + MAX_COOLING_SECONDS) if reason else 0.0, reason

    @staticmethod
    def _is_bad(state: _State) -> bool:
        since = _now() - WINDOW_SECONDS
        recent = [failed for at, failed in state.outcomes if at >= since]
        before, last = recent[:-FAILURES_IN_TURN], recent[-FAILURES_IN_TURN:]
        died = sum(last) == FAILURES_IN_TURN and sum(before) <= WELL_SHARE * len(before)
        return died or sum(recent) >= max(MIN_FAILURES, MAX_SHARE * len(recent))


def _now() -> float:
    return asyncio.get_running_loop().time()
