"""Live processors, the time of their last heartbeat, and the requests that they take from their queues."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tg_base.protocol import HeartbeatTiming, Presence

UNNOTICED_SECONDS = 60.0
"""How long a broker may deliver requests to a suspended or partitioned processor before it notices."""
SUSPICIOUS_HEARTBEATS = 2
"""Heartbeat intervals after which a request is published again in that time, if a processor could take it."""


@dataclass(slots=True)
class _Member:
    """A processor: when it was heard, since when it has been idle, and the queue times of what it took lately."""

    since: float
    at: float
    presence: Presence
    idle_since: float | None = None
    waits: deque[tuple[float, float]] = field(default_factory=deque)


class Membership:
    """The processors that a requestor knows.

    Args:
        timing: when a silent processor counts as dead.
        time: a monotonic clock, in seconds.

    Attributes:
        version: changes with every update.
    """

    def __init__(self, timing: HeartbeatTiming, time: Callable[[], float]) -> None:
        self._timing = timing
        self._time = time
        self._since = time()
        self.version = 0
        self._heard: dict[str, _Member] = {}
        self._sought: dict[str, float] = {}
        self._bereft: dict[str, float] = {}
        self._changed = asyncio.Event()

    def update(self, presence: Presence) -> bool:
        """A processor has announced itself; True if it was unknown."""
        self.version += 1
        now, before = self._time(), self._heard.get(presence.processor)
        new = self._heard[presence.processor] = before or _Member(now, now, presence)
        taken = before is not None and presence.taken != new.presence.taken
        # Idle means free slots and an unchanged count: one that takes requests and ends them quickly always looks free.
        free = presence.in_flight < presence.capacity
        new.idle_since = None if not free else now if taken or new.idle_since is None else new.idle_since
        if taken:
            new.waits.append((now, presence.waited))
        while new.waits and new.waits[0][0] < now - self._timing.dead_after:
            new.waits.popleft()
        # A queue that was ever served needs no time of listening before it is called unserved.
        if before is None or new.presence.queues != presence.queues:
            self._sought |= dict.fromkeys(presence.queues, self._since)
        new.at, new.presence = now, presence
        # A new event each time: clearing the old one could hide the change from a task that is about to look.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return before is None

    def notice(self, processor: str) -> None:
        """A processor has sent a message, perhaps before its first announcement: from now on it can be found dead."""
        if processor not in self._heard:
            now = self._time()
            self._heard[processor] = _Member(now, now, Presence(processor, (), 0, 0))

    async def wait(self, seconds: float) -> None:
        """Return when a processor has announced itself, or after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def until_served(self, queues: Collection[str], seconds: float) -> None:
        """Return when every queue has a live processor, or after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(map(self.serving, queues)):
                    await self.wait(seconds)

    @property
    def new(self) -> list[str]:
        """Processors that came recently. They learn our clock offset from heartbeats before our first request."""
        limit = self._time() - self._timing.dead_after
        return [processor for processor, heard in self._heard.items() if heard.since > limit]

    def serving(self, queue: str) -> list[Presence]:
        """The live processors that take requests from a queue."""
        return [presence for presence in self if _serves(presence, queue)]

    def features(self, queue: str) -> frozenset[str]:
        """What every live processor of a queue announces: a request may be taken by any of them."""
        return frozenset.intersection(*(frozenset(presence.features) for presence in self.serving(queue)))

    def request_bytes(self, queue: str) -> int:
        """Size of the largest request that every live processor of a queue fetches in parts; 0 = there is none."""
        return min((presence.request_bytes for presence in self.serving(queue)), default=0)

    def seek(self, queue: str) -> None:
        """Start to count how long this queue has had no processor, unless it was served or sought before."""
        self._sought.setdefault(queue, self._time())

    def is_unserved(self, queue: str) -> bool:
        """Whether no live processor serves this queue, and we have listened long enough to know."""
        listened = self._time() - self._sought.get(queue, self._since)
        return listened > self._timing.dead_after and not self.serving(queue)

    def is_stalled(self, queue: str, asked: float) -> bool:
        """Whether a request published at that time is still queued although a processor could have taken it.

        Then it was probably delivered to a partitioned one, which the broker notices only after a minute. A processor
        could have taken it if it was idle, or if it took only requests with a shorter queue time. A processor that
        takes requests in turn, however slowly, will reach it.
        """
        now = self._time()
        # A processor that died lately may be partitioned from us alone: the broker still delivers requests to it.
        bereft = now - self._bereft.get(queue, -math.inf) < UNNOTICED_SECONDS
        long = SUSPICIOUS_HEARTBEATS * self._timing.interval if bereft else self._timing.dead_after
        waited = now - asked
        if waited < long:
            return False
        serving = [each for each in self._heard.values() if _serves(each.presence, queue)]
        return any(self._could_take(each, waited, long) for each in serving)

    def _could_take(self, heard: _Member, waited: float, long: float) -> bool:
        now = self._time()
        # One that was idle when it was last heard may have died since. If the late one is this process, all are silent,
        # and nothing is published again.
        heard_lately = heard.at > now - self._timing.overdue_after
        if heard_lately and heard.idle_since is not None and heard.idle_since <= now - long:
            return True
        taking = bool(heard.waits) and heard.waits[-1][0] > now - 2 * self._timing.interval
        return taking and max(wait for _, wait in heard.waits) + long < waited

    def silent(self, seconds: float) -> bool:
        """Whether any processor has been silent for this long."""
        limit = self._time() - seconds
        return any(heard.at < limit for heard in self._heard.values())

    def expire(self) -> dict[str, Presence]:
        """Remove and return the processors that have been silent for too long."""
        limit = self._time() - self._timing.dead_after
        dead = {processor: heard.presence for processor, heard in self._heard.items() if heard.at < limit}
        self.version += bool(dead)
        for processor, presence in dead.items():
            del self._heard[processor]
            self._bereft |= dict.fromkeys(presence.queues, self._time())
        return dead

    def __iter__(self) -> Iterator[Presence]:
        return (heard.presence for heard in self._heard.values())


def _serves(presence: Presence, queue: str) -> bool:
    return queue in presence.queues and not presence.leaving
