"""Door or pool provider -> scheduler: which request goes to a server now, which one waits, and which is refused."""

from collections.abc import Callable, Sequence
from functools import partial

from typing_extensions import override

from tg_picker.core.interface import Endpoint, InstanceRequest, InstanceUsage
from tg_picker.core.policies import NO_ENDPOINTS_RETRY_SECONDS, SATURATED_RETRY_SECONDS, Choice, Scheduler
from tg_picker.core.queue.capacity import Capacity
from tg_picker.core.queue.queue_limits import QueueLimits
from tg_picker.core.queue.request_queue import RequestQueue
from tg_picker.core.queue.slo_attainment import SlidingWindow, SloAttainment
from tg_picker.core.queue.waiting import Lane, Waiting
from tg_picker.core.state import (
    ASSUMED_OUTPUT_TOKENS,
    Follower,
    LatencySample,
    Pick,
    Placement,
    Rejection,
    RejectionReason,
)

_EMPTY = Rejection("no-endpoints", 503, NO_ENDPOINTS_RETRY_SECONDS)
_LATE = Rejection("objective-out-of-reach", 429)
"""Marks a request that no server would begin in time, so that requests that can still be in time may overtake it."""


class FlowControl(Follower):
    """Places requests while a server has capacity (see `Capacity`). Others wait in bands, by priority.

    It belongs to one event loop and has no clock: the time is an argument of its methods. It follows its scheduler.

    Args:
        scheduler: picks among the servers with capacity.
        limits: the limits of each pool's queue.

    Attributes:
        scheduler: the scheduler.
        attainment: how the routes meet their objectives.
        on_capacity: called when a waiting request may have capacity; then call `serve`, now or later.
    """

    def __init__(self, scheduler: Scheduler, limits: QueueLimits) -> None:
        self.scheduler = scheduler
        self._limits = limits
        self._queues: dict[str, RequestQueue] = {}
        self._served = SlidingWindow()
        self.attainment = SloAttainment()
        self.on_capacity: Callable[[], None] = lambda: None
        scheduler.followers += [self.attainment, self]

    @property
    def waiting(self) -> dict[str, dict[int, int]]:
        """The numbers of waiting requests, by pool and priority."""
        return {pool: queue.lengths for pool, queue in self._queues.items()}

    def measure(self, pool: str, priority: int) -> tuple[float, int]:
        """When the longest waiting request of this pool and priority arrived, and the bytes that all of them hold."""
        return self._queues[pool].measure(priority)

    @property
    def next_expiry(self) -> float | None:
        """When the first waiting request expires; None = no request waits."""
        return min((at for queue in self._queues.values() if (at := queue.next_expiry) is not None), default=None)

    def submit(
        self,
        pool: str,
        request: InstanceRequest,
        endpoints: Callable[[], Sequence[Endpoint]],
        now: float,
        *,
        arrived_at: float | None = None,
        size: int = 0,
    ) -> Waiting:
        """Place a request, refuse it, or let it wait. The result's `made` says which.

        Args:
            pool: the pool in whose queue it may wait.
            request: the request to place.
            endpoints: returns the servers that are eligible at the moment of the call.
            now: seconds on the scheduler's clock.
            arrived_at: when the request arrived, if an earlier attempt at it failed.
            size: bytes that are held while it waits.
        """
        if arrived_at is None:
            arrived_at = now
        if request.adapter is not None:
            # Filter here, so that the request waits neither for a server without its adapter nor in such a server's
            # queue.
            endpoints = partial(self._find_having, request.adapter, endpoints)
        queue = self._queues.get(pool)
        if queue is None:
            made = self._try(request, endpoints(), arrived_at, now, admitted=False)
        else:
            choice = self.scheduler.choose(request, endpoints(), now)
            # Refuse at once if waiting would not help.
            made = choice if isinstance(choice, Rejection) and not _waits(choice) else None
        waiting = self._waiting(request, endpoints, arrived_at, size)
        if made is not None:
            self._settle(waiting, made, now)
        else:
            self._enqueue(pool, waiting, now)
        return waiting

    def _enqueue(self, pool: str, waiting: Waiting, now: float) -> None:
        model, queue = waiting.request.model, self._queues.get(pool)
        waiting.lane = frozenset(each.address for each in waiting.endpoints() if each.serves(model))
        if queue is None:
            queue = RequestQueue(self._limits)
        displaced = queue.add(waiting)
        if displaced is None:
            self._settle(waiting, self._refuse_full(waiting, queue, now), now)
            return
        self._queues[pool] = queue
        for each in displaced:
            self._settle(each, Rejection("displaced", 429, self._retry_after(queue, now)), now)
        if len(queue) > 1:
            # Others wait already. This one overtakes them only by its priority, or if they need other servers.
            self._serve(pool, queue, now)

    def pick_at_once(
        self, pool: str, request: InstanceRequest, endpoints: Sequence[Endpoint], now: float
    ) -> Pick | None:
        """Place another attempt at a request. It never waits.

        Returns None if there is no capacity, or if other requests wait for it.
        """
        if pool in self._queues:
            return None
        if request.adapter is not None:
            endpoints = self.scheduler.missing.without(endpoints, request.adapter)
        made = self._try(request, endpoints, now, now, admitted=True)
        return made if isinstance(made, Pick) else None

    def serve(self, now: float) -> None:
        """Place the waiting requests for which there is capacity, and refuse those that have expired."""
        for pool, queue in tuple(self._queues.items()):
            for each in queue.expire(now):
                reason = Rejection("expired", 429, self._retry_after(queue, now))
                self._settle(each, reason if each.endpoints() else _EMPTY, now)
            self._serve(pool, queue, now)

    def leave(self, pool: str, waiting: Waiting, now: float) -> None:
        """Forget a request whose client left. If it was given a server, that server is released."""
        waiting.on_made = None
        if isinstance(waiting.made, Pick):
            waiting.made.placement.finish(None, now)
        elif waiting.made is None:
            queue = self._queues[pool]
            queue.remove(waiting)
            self._drop_if_empty(pool, queue)
            self.attainment.refused(waiting.request, now, now - waiting.arrived_at)
            # Other requests in its lane may have waited only behind it.
            self.changed()

    def move(self, placement: Placement, request: InstanceRequest, endpoint: Endpoint, now: float) -> Pick | None:
        """Count a request at the server that really runs it. Returns None if that server does not list the model."""
        choice = self.scheduler.choose(request, (endpoint,), now, admitted=True)
        if isinstance(choice, Rejection):
            placement.finish(None, now)
            return None
        moved = self.scheduler.place(request, choice, now)
        self.attainment.move(placement, moved.placement)
        placement.finish(None, now)
        return moved

    @override
    def changed(self) -> None:
        if self._queues:
            self.on_capacity()

    @override
    def finished(
        self, placement: Placement, sample: LatencySample | None, usage: InstanceUsage | None, now: float
    ) -> None:
        self.changed()

    def _waiting(
        self,
        request: InstanceRequest,
        endpoints: Callable[[], Sequence[Endpoint]],
        arrived_at: float,
        size: int,
    ) -> Waiting:
        objective = request.objective
        expires_at = arrived_at + min(self._limits.max_seconds, request.max_wait or self._limits.max_seconds)
        due = expires_at
        if objective is not None and objective.first_token is not None:
            due = arrived_at + objective.first_token
            if request.priority < 0:
                # A sheddable request must not be served late at the cost of others.
                expires_at = min(expires_at, due)
        answer = request.expected_tokens or min(request.max_tokens or ASSUMED_OUTPUT_TOKENS, ASSUMED_OUTPUT_TOKENS)
        return Waiting(request, endpoints, arrived_at, due, expires_at, size, request.prompt_tokens + answer)

    def _serve(self, pool: str, queue: RequestQueue, now: float) -> None:
        blocked: set[Lane] = set()
        for priority in queue.priorities:
            while (head := queue.head(priority, blocked)) is not None:
                made = self._try(
                    head.request, head.endpoints(), head.arrived_at, now, admitted=True, yields=head.yields
                )
                if made is _LATE:
                    queue.postpone(head)
                elif made is None:
                    # It blocks its lane for all lower bands.
                    blocked.add(head.lane)
                elif isinstance(made, Pick):
                    queue.take(head)
                    self._settle(head, made, now)
                else:
                    queue.remove(head)
                    self._settle(head, made, now)
        self._drop_if_empty(pool, queue)

    def _drop_if_empty(self, pool: str, queue: RequestQueue) -> None:
        if not queue:
            self._queues.pop(pool, None)

    def _settle(self, waiting: Waiting, made: Pick | Rejection, now: float) -> None:
        if isinstance(made, Pick):
            self._served.note(now, kept=True)
        elif made.status != 404:
            self.attainment.refused(waiting.request, now)
        waiting.made = made
        if waiting.on_made is not None:
            waiting.on_made(made)

    def _refuse_full(self, waiting: Waiting, queue: RequestQueue, now: float) -> Rejection:
        """The refusal of a request that may not wait. If none of its priority may, it names what is missing instead."""
        reason: RejectionReason = "queue-full"
        if not self._limits.band(waiting.priority)[0]:
            if not waiting.endpoints():
                return _EMPTY
            reason = "saturated" if waiting.request.objective is None else "objective-out-of-reach"
        return Rejection(reason, 429, self._retry_after(queue, now))

    def _try(
        self,
        request: InstanceRequest,
        endpoints: Sequence[Endpoint],
        arrived_at: float,
        now: float,
        *,
        admitted: bool,
        yields: bool = False,
    ) -> Pick | Rejection | None:
        """Place a request. None = it has to wait; _LATE = it would begin late, so it yields to other requests."""
        most = self._limits.max_requests
        roomy = endpoints if most is None else self._below_bound(request, endpoints, most)
        if roomy is None:
            return None
        choice = self.scheduler.choose(request, roomy, now, admitted=admitted)
        if isinstance(choice, Rejection):
            return None if _waits(choice) else choice
        knows_objectives = request.objective is not None or self.attainment.has_routes
        if not knows_objectives and choice.server.queue < self._limits.max_queued:
            # The usual case. `Capacity` would decide the same, at a tenth of the cost of a pick.
            return self.scheduler.place(request, choice, now)
        capacity = Capacity(self.scheduler, self.attainment, self._limits, request, arrived_at=arrived_at, now=now)
        is_late = yields and capacity.is_late(choice.server)
        found = _LATE if is_late else capacity.find(choice, map(self.scheduler.server, roomy))
        if not isinstance(found, Choice):
            return found
        if request.objective is None:
            return self.scheduler.place(request, found, now)
        first, output = capacity.predict(found.server), found.server.speed.predict_pace(found.server.requests)
        pick = self.scheduler.place(request, found, now)
        self.attainment.watch(pick.placement, request, arrived_at, first, output)
        return pick

    def _find_having(self, adapter: str, endpoints: Callable[[], Sequence[Endpoint]]) -> Sequence[Endpoint]:
        return self.scheduler.missing.without(endpoints(), adapter)

    def _below_bound(
        self, request: InstanceRequest, endpoints: Sequence[Endpoint], most: int
    ) -> Sequence[Endpoint] | None:
        """The servers below their limit of requests; None = there are servers, but all have reached it."""
        serving = [each for each in endpoints if each.serves(request.model)]
        # Without candidates, let the scheduler return the rejection.
        roomy = [each for each in serving if self.scheduler.server(each).requests < most]
        return roomy or (None if serving else endpoints)

    def _retry_after(self, queue: RequestQueue, now: float) -> float:
        """Seconds until the waiting requests are served at the recent rate; at most the longest permitted wait."""
        served = self._served.read(now).total
        if not served:
            return min(self._limits.max_seconds, 1.0)
        return min(max(60.0 * len(queue) / served, SATURATED_RETRY_SECONDS), self._limits.max_seconds)


def _waits(rejection: Rejection) -> bool:
    """Whether the reason of a rejection may vanish by itself, for example when servers start.

    A rejection by the admission rule is final.
    """
    return rejection.reason in {"objective-out-of-reach", "no-endpoints"}
