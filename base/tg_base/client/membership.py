"""Live processors, the time of their last heartbeat, and the requests that they take from their queues."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tg_base.protocol import HeartbeatTiming, LinkReport, Presence
from tg_base.runtime import is_set_within

UNNOTICED_SECONDS = 60.0
"""How long a broker may deliver requests to a suspended or partitioned processor before it notices."""
SUSPICIOUS_HEARTBEATS = 2
"""Heartbeat intervals after which a waiting request is published again if a processor could take it, within
`UNNOTICED_SECONDS` of a death."""


@dataclass(slots=True)
class Service:
    """A processor: since when it has been idle, and the queue times of the requests that it took lately.

    `keyed` counts our requests with a cache key that it runs or was sent directly; `announced` is that count at its
    last announcement. Until `cools_until` its model is better not asked.
    """

    presence: Presence
    idle_since: float | None = None
    waits: deque[tuple[float, float]] = field(default_factory=deque)
    keyed: int = 0
    announced: int = 0
    cools_until: float = 0.0

    @property
    def room(self) -> int:
        """The free slots that it announced, minus our requests that went to it since, plus those that ended."""
        return self.presence.capacity - self.presence.in_flight + self.announced - self.keyed

    def update(self, presence: Presence, now: float, remembered: float) -> None:
        """Take over its next announcement."""
        taken = presence.taken != self.presence.taken
        direct = presence.direct != self.presence.direct
        # Idle means free slots and an unchanged count: a processor that ends its requests quickly always looks free.
        free = presence.in_flight < presence.capacity
        is_new = taken or direct or self.idle_since is None
        self.idle_since = None if not free else now if is_new else self.idle_since
        if taken:
            self.waits.append((now, presence.waited))
        self.trim(now - remembered)
        self.presence = presence
        self.announced = self.keyed
        self.cools_until = now + presence.cooling if presence.cooling else 0.0

    def trim(self, limit: float) -> None:
        """Forget the queue times that were announced before `limit`."""
        while self.waits and self.waits[0][0] < limit:
            self.waits.popleft()


@dataclass(slots=True)
class _Member:
    """A process: since when it is known, when it was heard last, and its processors.

    `reported`, `over_below` and `ours` are from its last report to this requestor.
    """

    since: float
    at: float
    record: Presence
    services: dict[str, Service] = field(default_factory=dict)
    reported: int = -1
    over_below: int = 0
    ours: dict[str, int] = field(default_factory=dict)


class Membership:
    """The processors that a requestor knows, by the process that they are in.

    Args:
        timing: when a silent process counts as dead.
        time: a monotonic clock, in seconds.

    Attributes:
        version: changes with every update.
    """

    def __init__(self, timing: HeartbeatTiming, time: Callable[[], float]) -> None:
        self._timing = timing
        self._time = time
        self._since = time()
        self.version = 0
        self._members: dict[str, _Member] = {}
        self._by_queue: dict[str, list[tuple[_Member, Service]]] = {}
        self._asked_since: dict[str, float] = {}
        self._died_at: dict[str, float] = {}
        self._changed = asyncio.Event()

    def update(self, presence: Presence) -> bool:
        """A process has announced itself; True if it was unknown."""
        now, before = self._time(), self._members.get(presence.processor)
        # The answer to our own question may be older than an announcement to everybody that overtook it.
        known = -1 if before is None else before.record.number
        if 0 <= presence.number < known or (presence.number == known >= 0 and presence.base >= 0):
            return False
        self.version += 1
        member = self.notice(presence.processor)
        member.at = now
        if self.is_behind(presence):
            return before is None
        member.record = presence
        if presence.number > member.reported + 1:
            # A report comes with each announcement as long as any request of ours runs, and one more after that.
            member.ours = {}
        self._update_services(member, presence)
        # A new event each time: clearing the old one could hide the change from a task that is about to look.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return before is None

    def is_behind(self, record: Presence) -> bool:
        """Whether an announcement is incomplete for us, because we missed the one that it builds on."""
        return record.base > self._members[record.processor].record.number

    def _update_services(self, member: _Member, record: Presence) -> None:
        announced = (record,) if record.number < 0 else record.services
        ended = {*record.gone} if record.base >= 0 else {*member.services} - {one.processor for one in announced}
        for processor in ended & member.services.keys():
            del member.services[processor]
            self._by_queue.clear()
        for presence in announced:
            before = member.services.get(presence.processor)
            service = member.services[presence.processor] = before or Service(presence)
            # A queue that was served before can be called unserved without listening first.
            if before is None or before.presence.queues != presence.queues:
                self._asked_since |= dict.fromkeys(presence.queues, self._since)
            if before is None or _queues(before.presence) != _queues(presence):
                self._by_queue.clear()
            service.update(presence, member.at, self._timing.dead_after)

    def notice(self, processor: str) -> _Member:
        """A process has sent a message, perhaps before its first announcement: from now on it can be found dead."""
        if processor not in self._members:
            now = self._time()
            self._members[processor] = _Member(now, now, Presence(processor, (), 0, 0))
        return self._members[processor]

    def note(self, report: LinkReport) -> None:
        """A process has reported the state of its link to us."""
        member = self.notice(report.processor)
        member.over_below = max(member.over_below, report.over_below)
        if report.number >= member.reported:
            member.reported, member.ours = report.number, report.running
            self.version += 1

    def over_below(self, processor: str) -> int:
        """The lowest valid number of a process's links to us; streams of links with a lower number are over."""
        member = self._members.get(processor)
        return 0 if member is None else member.over_below

    def count_theirs(self, queue: str) -> int:
        """The requests that a queue's processors run for others than us."""
        return sum(
            max(presence.in_flight - member.ours.get(presence.processor, 0), 0)
            for member, presence in ((member, service.presence) for member, service in self._serving(queue))
        )

    def cools_until(self, queue: str) -> float:
        """When the first model of a queue's processors may be asked again; 0 = one of them is not cooling down."""
        return min((service.cools_until for _, service in self._serving(queue)), default=0.0)

    async def wait(self, seconds: float) -> None:
        """Return when a processor has announced itself, or after `seconds`."""
        await is_set_within(self._changed, seconds)

    async def until_served(self, queues: Collection[str], seconds: float) -> None:
        """Return when every queue has a live processor, or after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(map(self.serving, queues)):
                    await self.wait(seconds)

    @property
    def new(self) -> list[str]:
        """Processors that started recently. They learn our clock offset from heartbeats before our first request."""
        limit = self._time() - self._timing.dead_after
        return [processor for processor, member in self._members.items() if member.since > limit]

    def serving(self, queue: str) -> list[Presence]:
        """The live processors that take requests from a queue."""
        return [service.presence for _, service in self._serving(queue)]

    def overdue(self, queue: str, *, since: float) -> list[Presence]:
        """The processors of a queue whose process was last heard at or after `since`, and is overdue now."""
        limit = self._time() - self._timing.overdue_after
        return [service.presence for member, service in self._serving(queue) if since <= member.at < limit]

    def processors(self, queue: str) -> list[str]:
        """The processes that take requests from a queue."""
        return list(dict.fromkeys(member.record.processor for member, _ in self._serving(queue)))

    def find(self, queue: str, process: str) -> Service | None:
        """The processor of a queue in a process that can be sent requests directly now.

        None = the process has none of it, is overdue, takes no direct requests, or is the only one of the queue.
        """
        serving = self._serving(queue)
        if len(serving) < 2:
            return None
        limit = self._time() - self._timing.overdue_after
        for member, service in serving:
            if member.record.processor == process and service.presence.direct >= 0 and member.at > limit:
                return service
        return None

    def _serving(self, queue: str) -> list[tuple[_Member, Service]]:
        found = self._by_queue.get(queue)
        if found is None:
            found = self._by_queue[queue] = [
                (member, service)
                for member in self._members.values()
                for service in member.services.values()
                if queue in _queues(service.presence)
            ]
        return found

    def seek(self, queue: str) -> None:
        """Start to count how long this queue has had no processor, unless it was served or asked before."""
        self._asked_since.setdefault(queue, self._time())

    def is_unserved(self, queue: str) -> bool:
        """Whether no live processor serves this queue, and we have listened long enough to know."""
        listened = self._time() - self._asked_since.get(queue, self._since)
        return listened > self._timing.dead_after and not self.serving(queue)

    def is_stalled(self, queue: str, asked: float) -> bool:
        """Whether a request published at that time is still queued although a processor could have taken it.

        Such a request was probably delivered to a partitioned processor, which the broker notices only after a minute.
        A processor could have taken it if it was idle, or if it took only requests with a shorter queue time. Otherwise
        the processors take requests in order and will reach it, however slowly.
        """
        now = self._time()
        # A processor that died lately may be partitioned from us alone: the broker still delivers requests to it.
        lately = now - self._died_at.get(queue, -math.inf) < UNNOTICED_SECONDS
        long = SUSPICIOUS_HEARTBEATS * self._timing.interval if lately else self._timing.dead_after
        waited = now - asked
        if waited < long:
            return False
        return any(self._could_take(member, service, waited, long) for member, service in self._serving(queue))

    def _could_take(self, member: _Member, service: Service, waited: float, long: float) -> bool:
        now = self._time()
        # A processor that was idle when last heard may have died since. If this process is the late one, it has heard
        # no other process lately, and publishes nothing again.
        heard_lately = member.at > now - self._timing.overdue_after
        if heard_lately and service.idle_since is not None and service.idle_since <= now - long:
            return True
        service.trim(now - self._timing.dead_after)
        taking = bool(service.waits) and service.waits[-1][0] > now - 2 * self._timing.interval
        return taking and max(wait for _, wait in service.waits) + long < waited

    def silent(self, seconds: float) -> bool:
        """Whether any processor has been silent for this long."""
        limit = self._time() - seconds
        return any(member.at < limit for member in self._members.values())

    def expire(self) -> dict[str, tuple[Presence, ...]]:
        """Remove the processes that have been silent for too long, and return the services of each."""
        limit = self._time() - self._timing.dead_after
        dead = {processor: member for processor, member in self._members.items() if member.at < limit}
        self.version += bool(dead)
        for processor, member in dead.items():
            del self._members[processor]
            for service in member.services.values():
                self._died_at |= dict.fromkeys(service.presence.queues, self._time())
        if dead:
            self._by_queue.clear()
        return {
            processor: tuple(service.presence for service in member.services.values())
            for processor, member in dead.items()
        }

    def __iter__(self) -> Iterator[Presence]:
        return (service.presence for member in self._members.values() for service in member.services.values())


def _queues(presence: Presence) -> tuple[str, ...]:
    """The queues that it takes requests from."""
    return () if presence.leaving else presence.queues
