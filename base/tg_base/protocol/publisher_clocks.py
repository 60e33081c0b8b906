"""Ages of messages -> how long each was delayed, although the clocks of two machines differ.

A message's age, as a bus reports it, is its transit time plus the offset between the two clocks. The lowest recent age
of a publisher's messages is that offset plus an undisturbed transit. Any age above it is delay.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_SECONDS = 60.0
"""How long a lowest age is valid, and longer if no newer one has enough samples. Clocks drift by milliseconds in it."""
NEAR_SECONDS = 0.05
"""How far the transit times of two undisturbed messages may differ."""
MIN_SAMPLES = 3
"""Messages near the lowest age that make it credible: a single one may have been delayed."""
JUMP_SECONDS = 30.0
"""Transit times of heartbeats never differ by more than this. If their ages do, a clock was set."""
TRUSTED_SECONDS = 10.0
"""How long after a heartbeat a delay above `JUMP_SECONDS` is believed; later, a clock may have been set."""
MAX_PUBLISHERS = 10_000
"""Publishers that are remembered; beyond it the one heard least recently is forgotten."""


@dataclass(slots=True)
class _Window:
    """The lowest age within a period."""

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
        """The lowest credible age; infinite if there is none."""
        return min((window.least for window in (self.now, self.before) if window.near >= MIN_SAMPLES), default=math.inf)

    @property
    def lowest(self) -> float:
        """The lowest age, credible or not."""
        return min(self.now.least, self.before.least)


class PublisherClocks:
    """The clock offsets of the processes that publish to this one.

    Args:
        time: a monotonic clock, in seconds.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._publishers: dict[str, _Publisher] = {}

    def note_heartbeat(self, publisher: str, age: float) -> None:
        """A message came on a non-persistent topic: its age, in seconds, holds no queue time."""
        now = self._time()
        known = self._publishers.pop(publisher, None)
        if known is None or abs(age - known.lowest) > JUMP_SECONDS:
            known = _Publisher(now, _Window(now), _Window(now))
        elif now - known.now.since > WINDOW_SECONDS and known.now.near >= MIN_SAMPLES:
            known.now, known.before = _Window(now), known.now
        known.heard = now
        known.now.add(age)
        self._publishers[publisher] = known
        if len(self._publishers) > MAX_PUBLISHERS:
            del self._publishers[next(iter(self._publishers))]

    def silence(self, publisher: str) -> float:
        """Seconds since a publisher's last heartbeat; infinite = none has come."""
        known = self._publishers.get(publisher)
        return math.inf if known is None else self._time() - known.heard

    def delay(self, publisher: str, age: float) -> float | None:
        """Seconds by which a message of this age was delayed; None = not known."""
        known = self._publishers.get(publisher)
        if known is None or known.least == math.inf:
            return None
        delay = max(age - known.least, 0.0)
        return None if self._is_doubtful(known, delay) else delay

    def least_delay(self, publisher: str, age: float) -> float:
        """Seconds by which a message of this age was delayed at least; 0 if nothing is known.

        A single heartbeat tells: if it was delayed itself, the message was delayed even more.
        """
        known = self._publishers.get(publisher)
        delay = 0.0 if known is None else max(age - known.lowest, 0.0)
        return 0.0 if known is None or self._is_doubtful(known, delay) else delay

    def _is_doubtful(self, known: _Publisher, delay: float) -> bool:
        """Whether a clock may have been set, in place of such a delay."""
        return delay > JUMP_SECONDS and self._time() - known.heard > TRUSTED_SECONDS
