"""Topic of responses -> whether this process may take the next one."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from tg_base.bus import Delivery
from tg_base.runtime import counted
from tg_gateway.telemetry import BAND, BAND_MADE

MIN_PAUSE_SECONDS: Final = 0.5
"""Seconds after a first refusal, unless the provider asks for more in `retry_after`; they double with each refusal."""
MAX_AWAY_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of one model's messages that are returned for a while. The broker sends each of them again."""
AWAY_BYTES: Final = 16 * 1024
"""Bytes counted for each message that is returned for a while, besides its body."""


@dataclass(slots=True)
class ModelQueue:
    """One process's view of a topic of responses: the flex queue of a model, or what a flow is asked for at once.

    Attributes:
        topic: the topic.
        flow: the flow that is asked.
        find_room: returns how many more may be asked for now.
        longest_pause: seconds until the next is taken after a refusal, at most.
        starting: names of messages in hand for which no model has been asked yet.
        barred: keys that are over their limits, and until when (loop time).
        away: bytes of the messages that are returned for a while.
        service: the service, in the metrics of what waits for capacity; None = these do not.
        asked: names of those that a model was asked for and has neither ended nor refused.
        window: how many of them may be at a time, for a while after a refusal; None = as many as find room. A pool
            may refuse a request although its processor has a free slot, because its servers have none.
        refusals: how many rounds of refusals came one after the other.
        refused_at: when the latest came (loop time).
        resume_at: after a refusal: when to take the next (loop time).
        freed: something has ended, so there may be room.
    """

    topic: str
    flow: str
    find_room: Callable[[], int]
    longest_pause: float
    service: str | None = None
    starting: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)
    barred: dict[str | None, float] = field(default_factory=dict)
    away: int = 0
    window: int | None = None
    refusals: int = 0
    refused_at: float = 0.0
    resume_at: float = 0.0
    freed: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self, event: str) -> None:
        """Note the result of one attempt."""
        if self.service is not None:
            BAND.labels(self.service, event).inc()

    @contextmanager
    def ask(self, name: str) -> Iterator[None]:
        """Count it among the asked ones, as long as the block runs."""
        shown = nullcontext() if self.service is None else BAND_MADE.labels(self.service).track_inprogress()
        with counted(self.asked, name), shown:
            yield

    def free(self, name: str) -> None:
        """It starts no more, so others may."""
        self.starting.discard(name)
        self.freed.set()

    def bar(self, key: str | None, seconds: float | None) -> None:
        """Take none of a key for a while: it is over its limits, and others may have theirs meanwhile."""
        now = asyncio.get_running_loop().time()
        self.barred[key] = now + min(max(seconds or 0.0, MIN_PAUSE_SECONDS), self.longest_pause)

    def measure_bar(self, key: str | None) -> float:
        """Seconds until the next of this key may be taken; 0 or less = now."""
        return self.barred.get(key, 0.0) - asyncio.get_running_loop().time()

    def send_away(self, delivery: Delivery, seconds: float) -> bool:
        """Return a message to the queue for a while, unless too many are returned already."""
        if self.away >= MAX_AWAY_BYTES:
            return False
        size = AWAY_BYTES + len(delivery.body)
        self.away += size
        asyncio.get_running_loop().call_later(seconds, self._expect, size)
        delivery.nack(seconds)
        return True

    def _expect(self, size: int) -> None:
        self.away -= size

    @property
    def is_open(self) -> bool:
        """Whether another attempt may begin, judging by the refusals so far."""
        now = asyncio.get_running_loop().time()
        if now < self.resume_at:
            return False
        # Running responses may take long, and capacity may come from others that end.
        if self.window is None or now >= self.refused_at + self.longest_pause:
            return True
        return len(self.asked.keys() | self.starting) < max(self.window, 1)

    def end(self) -> None:
        """A success freed capacity, and there may be more."""
        self.refusals, self.resume_at = 0, 0.0
        if self.window is not None:
            self.window += 1

    def pause(self, seconds: float | None) -> None:
        """Take no messages for a while: each attempt costs two log entries."""
        now = asyncio.get_running_loop().time()
        if self.service is None:
            # What is asked at once waits for no model: that one failed says little of the next.
            self.resume_at = now + MIN_PAUSE_SECONDS
            return
        self.window, self.refused_at = len(self.asked), now
        if self.refused_at < self.resume_at:
            # Refusals of requests that were sent together come one by one, and count as one.
            return
        wait = max(seconds or 0.0, MIN_PAUSE_SECONDS * 2.0**self.refusals)
        self.resume_at = self.refused_at + min(wait, self.longest_pause)
        self.refusals = min(self.refusals + 1, 10)
