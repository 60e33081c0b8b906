"""Requestor -> queue: what its processors announce, and admission control, which rejects requests that would only wait.

Our share is the announced capacity minus the requests that run for other requestors. We may have that many requests in
flight, and `queue` more waiting. Any further request is rejected, with the time in which the waiting ones will be
answered as `retry_after`. Announcements are up to a heartbeat old; our own count is exact.
"""

import asyncio
import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tg_base.client.membership import Membership
from tg_base.protocol import Presence, Route
from tg_base.telemetry import REFUSALS
from tg_schema.errors import BadRequest, RateLimited, Unavailable
from tg_schema.features import Feature, describe_missing

SLOTS_PER_WAITING_REQUEST = 8
"""Default queue bound: capacity // SLOTS_PER_WAITING_REQUEST, at least MIN_QUEUE_REQUESTS."""
MIN_QUEUE_REQUESTS = 256
"""Lower limit of the default queue bound, so that a small model answers the clients of a team one after the other."""
ASSUMED_CAPACITY_REQUESTS = 256
"""The capacity if none is announced: for plain peers, and in the first seconds."""
DEFAULT_RETRY_AFTER_SECONDS = 1.0
"""`retry_after` until a processor has announced how long its requests take."""

MODEL_CHANGE_SECONDS = 5.0
"""Seconds that requests wait while an edit of a flow's model reaches its processors one after the other."""


@dataclass(frozen=True, slots=True)
class Announced:
    """What the live processors of a queue have announced, all together.

    Attributes:
        queues: the queues that they read.
        capacity: their slots.
        theirs: requests that they run for other requestors.
        seconds: how long their requests take; 0 = not known.
        served: whether there is a processor.
        features: the features that all of them have, because any of them may take a request.
        request_bytes: size of the largest request that all of them fetch in parts; 0 = there is none.
        models: the different models of these processors; a request may reach any of them.
        cools_until: when the first of their models may be asked again; 0 = one of them is not cooling down.
        failing: the type of the error that made the model cool down.
    """

    queues: tuple[str, ...]
    capacity: int
    theirs: int
    seconds: float
    served: bool
    features: frozenset[str]
    request_bytes: int
    models: tuple[str, ...] = ()
    cools_until: float = 0.0
    failing: str = ""

    def check(self, needed: frozenset[Feature]) -> None:
        """Refuse a request that not every one of these processors can answer.

        Raises:
            BadRequest: one of them lacks a feature that it needs.
        """
        if missing := needed - self.features:
            raise BadRequest(describe_missing(missing))


def round_up_to_milliseconds(seconds: float) -> float:
    """Round seconds up to whole milliseconds, so that a client that retries then is not too early."""
    return math.ceil(seconds * 1000) / 1000


class AdmissionControl:
    """Counts one requestor's unanswered requests by queue. A check costs a few microseconds.

    Args:
        presence: the announcements of the processors.

    Attributes:
        unanswered: the unanswered requests of each queue; the requestor counts them.
    """

    def __init__(self, presence: Membership) -> None:
        self.unanswered: Counter[str] = Counter()
        self._presence = presence
        self._announced: dict[str, Announced] = {}
        self._mixed_until: dict[str, float] = {}
        self._version = -1

    def check(self, route: Route[Any, Any], announced: Announced) -> None:
        """Reject a request that would exceed the bound of a queue with this announcement.

        Raises:
            RateLimited: with `retry_after`.
        """
        room = max(announced.capacity - announced.theirs, 0)
        # Processors of this queue may read others too, and share their slots: our requests in all of them count.
        default = max(announced.capacity // SLOTS_PER_WAITING_REQUEST, MIN_QUEUE_REQUESTS)
        bound = default if route.queue is None else route.queue
        waiting = sum(map(self.unanswered.__getitem__, announced.queues)) - room
        if waiting < bound:
            return
        REFUSALS.labels(route.spec.name, "queue").inc()
        name = f"{route.spec.name} of flow {route.flow}"
        wait = (waiting + 1) * announced.seconds / max(room, 1) or DEFAULT_RETRY_AFTER_SECONDS
        raise RateLimited(
            f"too many requests wait for {name}; ask again later", retry_after=round_up_to_milliseconds(wait)
        )

    async def settle(self, route: Route[Any, Any]) -> Announced:
        """What is announced for a queue, once all of its processors have the same model.

        Raises:
            Unavailable: they have several models.
        """
        queue = route.request
        announced = self.find(queue)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._mixed_until.get(queue)):
                while len(announced.models) > 1:
                    await self._presence.wait(MODEL_CHANGE_SECONDS)
                    announced = self.find(queue)
        if len(announced.models) > 1:
            REFUSALS.labels(route.spec.name, "models").inc()
            models = " and ".join(announced.models)
            raise Unavailable(
                f"flow {route.flow} has processors of different models, {models}, so each answer could be another's: "
                "stop those of one, or give them a flow of their own"
            )
        return announced

    def room(self, queue: str) -> int:
        """Requests that live processors would begin at once, as far as announced; 0 or less if others wait already."""
        announced = self.find(queue)
        if not announced.served:
            return 0
        return announced.capacity - announced.theirs - sum(map(self.unanswered.__getitem__, announced.queues))

    def count_waiting(self, queue: str) -> int:
        """Our requests in a queue for which its processors have no room, as far as announced."""
        waiting = -self.room(queue) if self.find(queue).served else self.unanswered[queue]
        return min(max(waiting, 0), self.unanswered[queue])

    def count_unanswered(self, model: str) -> int:
        """Our unanswered requests in the queues of a model's processors."""
        serving = [presence for presence in self._presence if model in presence.models]
        return sum(self.unanswered[queue] for queue in {queue for presence in serving for queue in presence.queues})

    def find(self, queue: str) -> Announced:
        """What is announced for a queue; summed up once for all requests until the next announcement."""
        if self._version != self._presence.version:
            self._version = self._presence.version
            self._announced.clear()
        announced = self._announced.get(queue)
        if announced is None:
            announced = self._announced[queue] = self._sum(queue, self._presence.serving(queue))
        return announced

    def _sum(self, queue: str, serving: list[Presence]) -> Announced:
        if not serving:
            nothing = frozenset[str]()
            return Announced(
                (queue,), ASSUMED_CAPACITY_REQUESTS, 0, 0.0, served=False, features=nothing, request_bytes=0
            )
        known = [presence for presence in serving if presence.seconds]
        models = tuple(sorted({", ".join(presence.models) for presence in serving if presence.models}))
        if len(models) > 1:
            self._mixed_until.setdefault(queue, asyncio.get_running_loop().time() + MODEL_CHANGE_SECONDS)
        else:
            self._mixed_until.pop(queue, None)
        return Announced(
            tuple({queue for presence in serving for queue in presence.queues}),
            sum(presence.capacity for presence in serving),
            self._presence.count_theirs(queue),
            sum(p.seconds * p.capacity for p in known) / max(sum(p.capacity for p in known), 1),
            served=True,
            features=frozenset.intersection(*(frozenset(presence.features) for presence in serving)),
            request_bytes=min(presence.request_bytes for presence in serving),
            models=models,
            cools_until=self._presence.cools_until(queue),
            failing=serving[0].failing if all(presence.failing for presence in serving) else "",
        )
