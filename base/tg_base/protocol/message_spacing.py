"""Link -> its next message: how long it waits for more frames, so that messages under load are fewer and fuller."""

from collections.abc import Iterable
from typing import Final

MESSAGES_PER_SECOND: Final = 1000
"""Link messages that a process sends, or receives, over all its links under load."""
SPACING_SECONDS: Final = 1 / MESSAGES_PER_SECOND
"""Least time between two messages of a link, if neither end has another link."""
MAX_SPACING_SECONDS: Final = 0.005
"""Upper limit of that time, however many links there are and however far a reader lags."""
BURST_MESSAGES: Final = 2
"""Messages that leave at once after a pause: few streams never wait for each other."""
KEPT_UP_MESSAGES: Final = 64
"""The unacknowledged messages of a reader that keeps up, which acknowledges this many at a time."""
WINDOW_SECONDS: Final = 0.1
"""How long frames are counted before the rate is divided among the links anew."""
HALF_LIFE_SECONDS: Final = 2.0
"""Time in which an unneeded spacing halves; it bridges the gap between two bursts of requests."""


def share(rates: Iterable[float]) -> float:
    """Seconds between two messages of each link, so that all links together send `MESSAGES_PER_SECOND`.

    Links with few frames need less than an equal part; the others share the remainder.

    Args:
        rates: frames per second of each link. A link sends at most one message for each frame.

    Returns:
        From `SPACING_SECONDS` to `MAX_SPACING_SECONDS`.
    """
    left, ordered = float(MESSAGES_PER_SECOND), sorted(rates)
    for index, rate in enumerate(ordered):
        others = len(ordered) - index
        if rate * others >= left:
            return min(max(others / left, SPACING_SECONDS), MAX_SPACING_SECONDS)
        left -= rate
    return SPACING_SECONDS


class FairSpacing:
    """How far apart the messages of one process's links should be, by the frames that each carried lately.

    The spacing grows at once, and halves within `HALF_LIFE_SECONDS` when it is no longer needed.
    """

    def __init__(self) -> None:
        self._seconds = SPACING_SECONDS
        self._before: dict[str, int] = {}
        self._since = float("-inf")

    def update(self, frames: Iterable[tuple[str, int]], now: float) -> float:
        """Seconds between two messages of a link; computed anew every `WINDOW_SECONDS`.

        Args:
            frames: the frames of each link since it opened, by its name; read only if it is time.
            now: the time, in seconds.
        """
        if (elapsed := now - self._since) >= WINDOW_SECONDS:
            counts = dict(frames)
            needed = share((count - self._before.get(link, 0)) / elapsed for link, count in counts.items())
            # Links that were busy lately will be so again: without this, each burst would begin with as
            # many small messages as there are links.
            self._seconds = max(needed, self._seconds * 0.5 ** (elapsed / HALF_LIFE_SECONDS))
            self._before, self._since = counts, now
        return self._seconds


class MessageSpacing:
    """When the next message of one link may leave. It has no clock of its own.

    Messages leave `SPACING_SECONDS` apart, up to `BURST_MESSAGES` at once after a pause. So a single stream at a
    model's speed never waits, and the frames of many streams join into one message. The spacing grows with the number
    of links at either end (`wanted`), and with the messages that the reader has not acknowledged.

    Attributes:
        wanted: seconds that `FairSpacing` asks for, at this end or the other.
        frames: how many have been sent.
    """

    def __init__(self) -> None:
        self.wanted = SPACING_SECONDS
        self.frames = 0
        self._due = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds until the next message may leave; not above 0 = now."""
        return self._due - now

    def note_sent(self, frames: int, unacknowledged: int, now: float) -> None:
        """Note that a message is sent now.

        Args:
            frames: how many it has.
            unacknowledged: messages that the reader has not acknowledged.
            now: the time, in seconds.
        """
        self.frames += frames
        lag = max(1.0, unacknowledged / KEPT_UP_MESSAGES)
        spacing = min(max(self.wanted, SPACING_SECONDS) * lag, MAX_SPACING_SECONDS)
        # A pause saves up for the next burst, but for no more than `BURST_MESSAGES`.
        self._due = max(self._due, now - (BURST_MESSAGES - 1) * spacing) + spacing
