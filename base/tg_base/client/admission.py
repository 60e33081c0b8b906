"""Requestor -> queue, or a refusal: how much is asked already, and whether more would only wait.

The rule: of the capacity that live processors announce, what they do for other requestors is theirs; the rest is ours.
So much may be asked at once, and `queue` requests more, which wait. Beyond it a request is refused, with the time in
which as many will have been answered as wait. Announcements are up to a beat old; what is asked here is exact.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tg_base.client.membership import Membership
from tg_base.protocol import Presence, Route
from tg_base.telemetry import REFUSALS
from tg_schema.errors import RateLimited

SLOTS_PER_WAITING_REQUEST = 8
"""Unless the route says how many may wait: one for so many that are worked on, ..."""
MIN_QUEUE_REQUESTS = 8
"""... and at least so many, so that a few impatient clients of a small model are not turned away."""
ASSUMED_CAPACITY_REQUESTS = 256
"""The capacity where none is announced: of plain peers, and in the first seconds."""
DEFAULT_RETRY_AFTER_SECONDS = 1.0
"""Seconds to come back after, as long as no processor has told how long its requests take."""


@dataclass(frozen=True, slots=True)
class _Pool:
    """The processors of a queue, as last announced: how much they do for us and others, and all queues they read."""

    queues: tuple[str, ...]
    capacity: int
    theirs: int
    seconds: float


def in_milliseconds(seconds: float) -> float:
    """Seconds with three digits behind the point, never earlier: whoever comes back then is not too early."""
    return math.ceil(seconds * 1000) / 1000


class AdmissionControl:
    """What one requestor has asked and not got, by queue. A check costs a few microseconds.

    Args:
        presence: what processors announce.
        inbox: the requestor's, by which they tell whom they work for.
    """

    def __init__(self, presence: Membership, inbox: str) -> None:
        self.asked: Counter[str] = Counter()
        self._presence = presence
        self._inbox = inbox
        self._pools: dict[str, _Pool] = {}
        self._version = -1

    def check(self, route: Route[Any, Any]) -> None:
        """Refuse what would find the queue full.

        Raises:
            RateLimited: with `retry_after`.
        """
        pool = self._pool(route.request)
        room = max(pool.capacity - pool.theirs, 0)
        bound = (
            max(pool.capacity // SLOTS_PER_WAITING_REQUEST, MIN_QUEUE_REQUESTS) if route.queue is None else route.queue
        )
        waiting = sum(self.asked[queue] for queue in pool.queues) - room
        if waiting < bound:
            return
        REFUSALS.labels(route.spec.name, "queue").inc()
        name = f"{route.spec.name} of flow {route.flow}"
        wait = (waiting + 1) * pool.seconds / max(room, 1) or DEFAULT_RETRY_AFTER_SECONDS
        raise RateLimited(f"more requests wait for {name} than may; come back later", retry_after=in_milliseconds(wait))

    def _pool(self, queue: str) -> _Pool:
        if self._version != self._presence.version:
            self._version = self._presence.version
            self._pools.clear()
        pool = self._pools.get(queue)
        if pool is None:
            pool = self._pools[queue] = self._sum(queue, self._presence.serving(queue))
        return pool

    def _sum(self, queue: str, serving: list[Presence]) -> _Pool:
        if not serving:
            return _Pool((queue,), ASSUMED_CAPACITY_REQUESTS, 0, 0.0)
        capacity = sum(presence.capacity for presence in serving)
        known = [presence for presence in serving if presence.seconds]
        return _Pool(
            tuple({queue for presence in serving for queue in presence.queues}),
            capacity,
            sum(presence.in_flight - self._ours(presence) for presence in serving),
            sum(p.seconds * p.capacity for p in known) / max(sum(p.capacity for p in known), 1),
        )

    def _ours(self, presence: Presence) -> int:
        link = presence.links.get(self._inbox)
        return 0 if link is None else min(link.running, presence.in_flight)
