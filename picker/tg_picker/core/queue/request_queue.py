"""Requests without a server -> the order in which they get one: by bands, fair flows, deadlines. Bounded."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from operator import attrgetter

from tg_picker.core.queue.fair_flows import FairFlows, FlowAccounts
from tg_picker.core.queue.priority_queue import PriorityQueue
from tg_picker.core.queue.queue_limits import QueueLimits
from tg_picker.core.queue.waiting import Lane, Waiting


class _Band:
    """The waiting requests of one priority."""

    def __init__(self) -> None:
        self.accounts = FlowAccounts()
        self.arrivals: dict[Waiting, None] = {}
        self.lanes: dict[Lane, FairFlows] = {}
        self.flows: defaultdict[str, dict[Waiting, None]] = defaultdict(dict)
        self.size = 0


class RequestQueue:
    """Requests that wait for a server of one pool. A band goes before all lower ones; within a band, flows take turns.

    Args:
        limits: how much may wait.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._bands: dict[int, _Band] = {}
        self._expiries = PriorityQueue[Waiting]()

    def __len__(self) -> int:
        return len(self._expiries)

    @property
    def size(self) -> int:
        """Bytes that are held for all waiting requests."""
        return sum(band.size for band in self._bands.values())

    @property
    def lengths(self) -> dict[int, int]:
        """The numbers of waiting requests by priority, the highest priority first."""
        return {priority: len(self._bands[priority].arrivals) for priority in self.priorities}

    def measure(self, priority: int) -> tuple[float, int]:
        """When the longest waiting request of a band arrived, and the bytes of the band. The band must not be empty."""
        band = self._bands[priority]
        return next(iter(band.arrivals)).arrived_at, band.size

    @property
    def next_expiry(self) -> float | None:
        """When the first waiting request expires; None = no request waits."""
        return self._expiries.least_key() if self._expiries else None

    def add(self, waiting: Waiting) -> list[Waiting] | None:
        """Add a request.

        Returns:
            The requests evicted for it: the newest ones of the lowest bands, or the newest one of the longest flow in
            the same band. None: the queue is full, and nothing changed.
        """
        displaced = self._make_room(waiting)
        if displaced is None:
            return None
        for each in displaced:
            self.remove(each)
        band = self._bands.setdefault(waiting.priority, _Band())
        band.arrivals[waiting] = None
        band.lanes.setdefault(waiting.lane, FairFlows(band.accounts)).add(waiting)
        band.flows[waiting.flow][waiting] = None
        band.size += waiting.size
        self._expiries.push(waiting.expires_at, waiting)
        return displaced

    @property
    def priorities(self) -> list[int]:
        """The bands in which requests wait, the highest first."""
        return sorted(self._bands, reverse=True)

    def head(self, priority: int, blocked: Collection[Lane] = ()) -> Waiting | None:
        """The request that goes next in a band: one of the flow that was served least, in any lane that is not blocked.

        Args:
            priority: the band.
            blocked: lanes that are skipped.

        Returns:
            The request; None = none waits there.
        """
        band = self._bands.get(priority)
        free = [] if band is None else [flows for lane, flows in band.lanes.items() if lane not in blocked]
        return min(free, key=attrgetter("paid")).head() if free else None

    def take(self, head: Waiting) -> None:
        """Remove a `head` that goes to a server, and charge its flow."""
        self._bands[head.priority].lanes[head.lane].take()
        self._forget(head)

    def postpone(self, waiting: Waiting) -> None:
        """Move a request behind those that can still meet their objective. It expires at the same time as before."""
        self._bands[waiting.priority].lanes[waiting.lane].postpone(waiting)

    def remove(self, waiting: Waiting) -> None:
        """Remove a queued request that will not go to a server."""
        self._bands[waiting.priority].lanes[waiting.lane].remove(waiting)
        self._forget(waiting)

    def expire(self, now: float) -> list[Waiting]:
        """Remove and return all requests whose time to wait is over."""
        expired = []
        while self._expiries and self._expiries.least_key() <= now:
            expired.append(self._expiries.peek())
            self.remove(expired[-1])
        return expired

    def _forget(self, waiting: Waiting) -> None:
        band = self._bands[waiting.priority]
        del band.arrivals[waiting]
        del band.flows[waiting.flow][waiting]
        if not band.flows[waiting.flow]:
            del band.flows[waiting.flow]
        band.size -= waiting.size
        self._expiries.discard(waiting)
        # Clients choose neither bands nor lanes, but lanes change with the eligible servers. So drop empty ones.
        if not band.lanes[waiting.lane]:
            del band.lanes[waiting.lane]
        if not band.arrivals:
            del self._bands[waiting.priority]

    def _make_room(self, waiting: Waiting) -> list[Waiting] | None:
        requests, size = self._limits.band(waiting.priority)
        if not requests or waiting.size > min(size, self._limits.max_bytes):
            return None
        band = self._bands.get(waiting.priority) or _Band()
        free = min(size - band.size, self._limits.max_bytes - self.size)
        if len(band.arrivals) >= requests or band.size + waiting.size > size:
            return self._exchange(waiting, band, free)
        lacking_requests = len(self) + 1 - self._limits.max_waiting
        lacking_size = self.size + waiting.size - self._limits.max_bytes
        displaced: list[Waiting] = []
        for each in self._lower(waiting.priority):
            if lacking_requests <= 0 and lacking_size <= 0:
                return displaced
            displaced.append(each)
            lacking_requests -= 1
            lacking_size -= each.size
        if lacking_requests <= 0 and lacking_size <= 0:
            return displaced
        return self._exchange(waiting, band, free)

    def _exchange(self, waiting: Waiting, band: _Band, free: int) -> list[Waiting] | None:
        """The request of the same band to evict, if its flow has at least two requests more; None = there is none."""
        longest = max(band.flows.values(), key=len, default={})
        if len(longest) < len(band.flows.get(waiting.flow, ())) + 2:
            return None
        newest = next(reversed(longest))
        return [newest] if waiting.size <= free + newest.size else None

    def _lower(self, priority: int) -> Iterator[Waiting]:
        for lower in sorted(each for each in self._bands if each < priority):
            yield from reversed(self._bands[lower].arrivals)
