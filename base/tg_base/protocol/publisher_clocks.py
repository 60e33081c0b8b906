"""Ages of messages -> how long each was on its way, although the clocks of two machines differ.

A message's age, as a bus tells it, is its time on the way plus what this machine's clock is ahead of the publisher's.
The least age of what a publisher has sent lately is that difference plus an undisturbed way. What a message is older
than that, it has waited.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_SECONDS = 60.0
"""How long a least age counts; after that, until a newer one is as good. Clocks drift by milliseconds in that time."""
NEAR_SECONDS = 0.05
"""How far the ways of two messages may differ that both were undisturbed."""
MIN_SAMPLES = 3
"""Messages near the least age that make it credible: one alone may have been held up on its way."""
JUMP_SECONDS = 30.0
"""Heartbeats never differ by more than this on their way. If their ages do, a clock was set."""
TRUSTED_SECONDS = 10.0
"""How long after a heartbeat a message that seems older than `JUMP_SECONDS` is so; later, a clock may have been set."""
MAX_PUBLISHERS = 10_000
"""Publishers that are remembered; beyond it the one that was heard longest ago is forgotten."""


@dataclass(slots=True)
class _Window:
    """The least age of some time."""

    since: float
    least: float = math.inf
    near: int = 0

    def add(self, age: float) -> None:
        if age < self.least - NEAR_SECONDS:
            self.near = 0
        self.least = min(age, self.least)
        self.near += age <= self.least + NEAR_SECONDS


@dataclass(slots=True)
class _Publisher:
    heard: float
    now: _Window
    before: _Window

    @property
    def least(self) -> float:
        """The least age that is credible; infinite where there is none."""
        return min((window.least for window in (self.now, self.before) if window.near >= MIN_SAMPLES), default=math.inf)


class PublisherClocks:
    """What this process knows of the clocks of those that publish to it.

    Args:
        time: a monotonic clock, in seconds.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._publishers: dict[str, _Publisher] = {}

    def heartbeat(self, publisher: str, age: float) -> None:
        """A message has come that no bus keeps: its age, in seconds, is the difference of the clocks and the way."""
        now = self._time()
        known = self._publishers.pop(publisher, None)
        if known is None or abs(age - min(known.now.least, known.before.least)) > JUMP_SECONDS:
            known = _Publisher(now, _Window(now), _Window(now))
        elif now - known.now.since > WINDOW_SECONDS and known.now.near >= MIN_SAMPLES:
            known.now, known.before = _Window(now), known.now
        known.heard = now
        known.now.add(age)
        self._publishers[publisher] = known
        if len(self._publishers) > MAX_PUBLISHERS:
            del self._publishers[next(iter(self._publishers))]

    def delay(self, publisher: str, age: float) -> float | None:
        """Seconds that a message of this age waited on its way, beyond an undisturbed one; None = not known."""
        known = self._publishers.get(publisher)
        if known is None or known.least == math.inf:
            return None
        delay = max(age - known.least, 0.0)
        doubtful = delay > JUMP_SECONDS and self._time() - known.heard > TRUSTED_SECONDS
        return None if doubtful else delay
