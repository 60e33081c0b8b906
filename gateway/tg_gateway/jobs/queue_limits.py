"""Flex queue -> whether another response may wait, and whether this gateway may take a model's next one."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tg_base.bus import Delivery
from tg_base.protocol import Route
from tg_base.telemetry import REFUSALS
from tg_gateway.jobs.logs import JobLogs
from tg_gateway.telemetry import BAND
from tg_schema.errors import NotFound, RateLimited

MIN_PAUSE_SECONDS: Final = 0.5
"""Seconds after a first refusal, unless the provider asks for more in `retry_after`; they double with each refusal."""
MAX_HELD_MESSAGES: Final = 64
"""How many messages of one model may be held because their keys are over their limits; beyond that no more are
taken."""
MAX_KEY_SHARE: Final = 0.5
"""One key's share of the held messages, and of the paused bytes. Beyond it, that key's next messages return to the flex
queue for a while, so that other keys get their turn."""
MAX_AWAY_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of one model's messages that are returned in this way. The broker sends each of them again."""
PAUSED_TASK_BYTES: Final = 16 * 1024
"""Bytes counted for each paused or returned message, besides its body."""


@dataclass(slots=True)
class ModelQueue:
    """One gateway's view of the flex queue of one model.

    Attributes:
        route: the service.
        topic: the topic of the flex queue.
        longest_pause: seconds until the next is taken after a refusal, at most.
        most_paused: bytes from which on nothing more is taken, as `paused` counts them.
        starting: names of messages in hand for which no model has been asked yet.
        held: how many wait here until their keys may ask again, by key.
        paused: bytes of those that wait here for the end of their pause, or for room behind it, by key.
        away: bytes of those that are given back for a while.
        asked: names of those that a model was asked for and has neither ended nor refused.
        window: how many of them may be at a time, for a while after a refusal; None = as many as find room. A pool
            may refuse a request although its processor has a free slot, because its servers have none.
        refusals: how many rounds of refusals came one after the other.
        refused_at: when the latest came (loop time).
        resume_at: after a refusal: when to take the next (loop time).
        freed: something has ended, so there may be room.
        turn: the turn of the paused task that checks for capacity.
    """

    route: Route[Any, Any]
    topic: str
    longest_pause: float
    most_paused: int
    starting: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    held: Counter[str | None] = field(default_factory=Counter)
    paused: Counter[str | None] = field(default_factory=Counter)
    away: int = 0
    window: int | None = None
    refusals: int = 0
    refused_at: float = 0.0
    resume_at: float = 0.0
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def count(self, event: str) -> None:
        """Note the result of one attempt."""
        BAND.labels(self.route.spec.name, event).inc()

    @property
    def is_full(self) -> bool:
        """Whether this process holds as many messages as it may."""
        return self.held.total() >= MAX_HELD_MESSAGES or self.paused.total() >= self.most_paused

    def is_crowded(self, key: str | None) -> bool:
        """Whether this process holds as many messages of one key as it may."""
        held = self.held[key] >= MAX_HELD_MESSAGES * MAX_KEY_SHARE
        return held or self.paused[key] >= self.most_paused * MAX_KEY_SHARE

    def send_away(self, delivery: Delivery, seconds: float) -> bool:
        """Return a message to the queue for a while, unless too many are returned already."""
        if self.away >= MAX_AWAY_BYTES:
            return False
        size = PAUSED_TASK_BYTES + len(delivery.body)
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
        return len(self.asked | self.starting) < max(self.window, 1)

    def end(self) -> None:
        """A success freed capacity, and there may be more."""
        self.refusals, self.resume_at = 0, 0.0
        if self.window is not None:
            self.window += 1

    def pause(self, seconds: float | None) -> None:
        """Take no messages for a while: each attempt costs two log entries."""
        self.window, self.refused_at = len(self.asked), asyncio.get_running_loop().time()
        if self.refused_at < self.resume_at:
            # Refusals of requests that were sent together come one by one, and count as one.
            return
        wait = max(seconds or 0.0, MIN_PAUSE_SECONDS * 2.0**self.refusals)
        self.resume_at = self.refused_at + min(wait, self.longest_pause)
        self.refusals = min(self.refusals + 1, 10)

    async def hold(self, key: str | None, seconds: float | None) -> None:
        """Hold one message of a key, while messages of others are taken."""
        self.held[key] += 1
        try:
            await asyncio.sleep(min(max(seconds or 0.0, MIN_PAUSE_SECONDS), self.longest_pause))
        finally:
            self.held -= Counter([key])

    @contextmanager
    def count_paused(self, key: str | None, size: int) -> Iterator[None]:
        """Count one paused message of this key, whose body has this size, as long as the block runs."""
        size += PAUSED_TASK_BYTES
        self.paused[key] += size
        try:
            yield
        finally:
            self.paused -= Counter({key: size})


CHECKED_AT_ONCE: Final = 4
"""How many waiting responses are checked at each refusal: other gateways may have taken them."""
RETRY_AFTER_SECONDS: Final = 10.0


class QueueBounds:
    """Counts the responses that one gateway has put into the flex queue.

    Args:
        logs: the logs of the responses.
        max_key: how many of one key may wait.
        max_all: how many of all keys.
    """

    def __init__(self, logs: JobLogs, *, max_key: int, max_all: int) -> None:
        self._logs = logs
        self._max_key = max_key
        self._max_all = max_all
        self._keys: Counter[str | None] = Counter()
        self._waiting: dict[str, tuple[str | None, float]] = {}

    async def admit(self, key: str | None, name: str, seconds: float, service: str) -> None:
        """Count one more.

        Raises:
            RateLimited: as many wait as may.
            BusError: the bus did not answer.
        """
        if self._is_full(key):
            await self._look(key)
        if self._is_full(key):
            REFUSALS.labels(service, "band").inc()
            raise RateLimited(
                'too many responses wait for room; wait for some of them, or ask without service_tier "flex"',
                retry_after=RETRY_AFTER_SECONDS,
            )
        self._waiting[name] = key, time.monotonic() + seconds
        self._keys[key] += 1

    def forget(self, name: str) -> None:
        """Stop counting a response that waits no longer."""
        if name in self._waiting:
            key, _ = self._waiting.pop(name)
            self._keys -= Counter([key])

    def _is_full(self, key: str | None) -> bool:
        return self._keys[key] >= self._max_key or self._keys.total() >= self._max_all

    async def _look(self, key: str | None) -> None:
        """Forget expired responses.

        Check a few, least recently checked first, and forget those that others took or ended.
        """
        now, crowded = time.monotonic(), self._keys.total() >= self._max_all
        found = [(name, *known) for name, known in self._waiting.items() if crowded or known[0] == key]
        for name, _, until in found:
            if until <= now:
                self._logs.written.mark(name, waits=False)
                self.forget(name)
        for name, owner, until in found[:CHECKED_AT_ONCE]:
            if until > now and not await self._contains(owner, name):
                self.forget(name)
            elif name in self._waiting:
                # Move it to the end; otherwise only the oldest would ever be checked.
                self._waiting[name] = self._waiting.pop(name)

    async def _contains(self, key: str | None, name: str) -> bool:
        """Whether no model was asked, and it has no end. Raises BusError as `admit`."""
        with suppress(NotFound):
            if (await self._logs.load(self._logs.owner(key), name)).waiting:
                return True
            # Other gateways do not count what this gateway has queued.
            self._logs.written.mark(name, waits=False)
        return False
