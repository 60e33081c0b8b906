"""The clocks of the protocol: of a process while it is awake, and of its publishers."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_SECONDS = 60.0
"""How long a lowest age is valid, unless no newer one has enough samples. Meanwhile clocks drift by milliseconds."""
NEAR_SECONDS = 0.05
"""How far the transit times of two undisturbed messages may differ."""
MIN_SAMPLES = 3
"""Messages near the lowest age that make it credible: a single one may have been delayed."""
JUMP_SECONDS = 30.0
"""Transit times of heartbeats never differ by more than this. If their ages do, a clock was set."""
TRUSTED_SECONDS = 10.0
"""How long after a heartbeat a delay above `JUMP_SECONDS` is believed; later, a clock may have been set."""
MAX_PUBLISHERS = 10_000
"""Publishers that are remembered; beyond this number, the one heard least recently is forgotten."""


class AwakeClock:
    """Monotonic seconds in which this process was awake. One task sleeps on it.

    A stalled event loop or a suspended machine receives nothing, and would declare every peer dead when it resumes.
    The time by which a sleep was late does not count.
    """

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._overslept = 0.0
        self._due = math.inf

    def __call__(self) -> float:
        """Now, in seconds since some fixed time. It stands still while the sleep is late."""
        return min(self._time(), self._due) - self._overslept

    async def sleep(self, seconds: float) -> None:
        """Sleep; the time by which it takes longer is not counted."""
        self._due = self._time() + seconds
        await asyncio.sleep(seconds)
        self._overslept += max(self._time() - self._due, 0.0)
        self._due = math.inf


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
    """`least` is the lowest credible age, infinite if there is none; `lowest` is the lowest, credible or not."""

    received_at: float
    now: _Window
    before: _Window
    least: float = math.inf
    lowest: float = math.inf

    def add(self, age: float) -> None:
        self.now.add(age)
        windows = (self.now, self.before)
        # Computed here and not per request: far more requests come than heartbeats.
        self.least = min((window.least for window in windows if window.near >= MIN_SAMPLES), default=math.inf)
        self.lowest = min(window.least for window in windows)


class PublisherClocks:
    """How long messages were delayed, although the clocks of two machines differ.

    A message's age, as a bus reports it, is its transit time plus the offset between the two clocks. The lowest recent
    age of a publisher's messages is that offset plus an undisturbed transit. Any age above it is delay.

    Args:
        time: a monotonic clock, in seconds.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._publishers: dict[str, _Publisher] = {}

    def note_heartbeat(self, publisher: str, age: float) -> None:
        """Note the age, in seconds, of a message on a non-persistent topic, which includes no queue time."""
        now = self._time()
        known = self._publishers.pop(publisher, None)
        if known is None or abs(age - known.lowest) > JUMP_SECONDS:
            known = _Publisher(now, _Window(now), _Window(now))
        elif now - known.now.since > WINDOW_SECONDS and known.now.near >= MIN_SAMPLES:
            known.now, known.before = _Window(now), known.now
        known.received_at = now
        known.add(age)
        self._publishers[publisher] = known
        if len(self._publishers) > MAX_PUBLISHERS:
            del self._publishers[next(iter(self._publishers))]

    def silence(self, publisher: str) -> float:
        """Seconds since a publisher's last heartbeat; infinite = none has arrived."""
        known = self._publishers.get(publisher)
        return math.inf if known is None else self._time() - known.received_at

    def delays(self, publisher: str, age: float) -> tuple[float | None, float]:
        """Seconds by which a message of this age was delayed (None = not known), and the least delay that is certain.

        For the second number a single heartbeat is enough: if it was delayed itself, the message was delayed even more.
        """
        known = self._publishers.get(publisher)
        if known is None:
            return None, 0.0
        # A delay this long may instead be a clock that was set. `lowest` is never above `least`.
        trusted = JUMP_SECONDS if self._time() - known.received_at > TRUSTED_SECONDS else math.inf
        delay, least = max(age - known.least, 0.0), max(age - known.lowest, 0.0)
        unknown = known.least == math.inf or delay > trusted
        return None if unknown else delay, 0.0 if least > trusted else least
