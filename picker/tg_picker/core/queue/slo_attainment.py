"""Placements -> whether routes meet their objectives: measured over a sliding window, and predicted for a server."""

from typing import NamedTuple

from msgspec import Struct, field
from typing_extensions import override

from tg_picker.core.interface import InstanceRequest, InstanceUsage, Objective
from tg_picker.core.queue.prediction_errors import PredictionErrors
from tg_picker.core.state import Follower, LatencySample, Placement

WINDOW_SECONDS = 60.0
BUCKET_COUNT = 12
"""The window slides in steps of a twelfth of its length."""
_BUCKET_SECONDS = WINDOW_SECONDS / BUCKET_COUNT


class Attained(NamedTuple):
    """How many of `total` events met an objective."""

    kept: int
    total: int

    @property
    def share(self) -> float:
        """The share from 0 to 1; 1 if there were no events."""
        return self.kept / self.total if self.total else 1.0


class SlidingWindow:
    """Counts events that met or missed an objective. Its memory does not grow with their number."""

    def __init__(self) -> None:
        self._buckets: dict[int, Attained] = {}

    def note(self, now: float, *, kept: bool) -> None:
        """Count an event."""
        at = int(now // _BUCKET_SECONDS)
        before = self._buckets.get(at, Attained(0, 0))
        self._buckets[at] = Attained(before.kept + kept, before.total + 1)
        if len(self._buckets) > BUCKET_COUNT:
            del self._buckets[next(iter(self._buckets))]

    def read(self, now: float) -> Attained:
        """The events of the last WINDOW_SECONDS, give or take a bucket."""
        passed = int(now // _BUCKET_SECONDS) - BUCKET_COUNT
        recent = [each for at, each in self._buckets.items() if at > passed]
        return Attained(sum(each.kept for each in recent), sum(each.total for each in recent))


MIN_SAMPLES = 20
"""With fewer requests in the window, no route counts as behind its objective."""
MAX_ROUTES = 1_000
BEHIND_SECONDS = 0.25
"""Seconds between two checks which routes are behind."""


class RouteSlo(NamedTuple):
    """How a route met its objectives in the last minute.

    Attributes:
        objective: the objectives of its last request.
        priority: the priority of that request.
        first_token: the requests whose first token was in time, of those measured.
        output_token: the requests whose tokens followed each other in time on average, of those measured.
    """

    objective: Objective
    priority: int
    first_token: Attained
    output_token: Attained

    @property
    def misses_first_token(self) -> bool:
        """Whether too few first tokens were in time."""
        # The last request may have no such objective, although earlier ones had it.
        return self.objective.first_token is not None and _misses(self.first_token, self.objective.quantile)

    @property
    def misses_output_token(self) -> bool:
        """Whether too few answers were fast enough."""
        return self.objective.output_token is not None and _misses(self.output_token, self.objective.output_quantile)

    @property
    def is_behind(self) -> bool:
        """Whether too few requests met one of the two objectives."""
        return self.misses_first_token or self.misses_output_token


def _misses(attained: Attained, share: float) -> bool:
    return attained.total >= MIN_SAMPLES and attained.share < share


class _Route(Struct):
    objective: Objective
    priority: int
    first_token: SlidingWindow = field(default_factory=SlidingWindow)
    output_token: SlidingWindow = field(default_factory=SlidingWindow)


class _Watched(NamedTuple):
    """A placed request with an objective, and the latencies that were predicted for it, in seconds."""

    route: _Route
    objective: Objective
    arrived_at: float
    first_token: float
    output_token: float


class SloAttainment(Follower):
    """Counts how often routes meet their objectives, and learns how reliable predictions are.

    Attributes:
        first_errors: errors of the predicted seconds from a placement to the first token.
        output_errors: errors of the predicted seconds from one token to the next.
    """

    def __init__(self) -> None:
        self._routes: dict[str, _Route] = {}
        self._watched: dict[Placement, _Watched] = {}
        self.first_errors = PredictionErrors()
        self.output_errors = PredictionErrors()
        self._behind: list[RouteSlo] = []
        self._looked_at = float("-inf")

    def read(self, now: float) -> dict[str, RouteSlo]:
        """The attainment of each route with objectives; "" = of requests without a route."""
        return {
            name: RouteSlo(route.objective, route.priority, route.first_token.read(now), route.output_token.read(now))
            for name, route in self._routes.items()
        }

    @property
    def has_routes(self) -> bool:
        """Whether any request has had an objective."""
        return bool(self._routes)

    def behind(self, priority: int, now: float) -> list[RouteSlo]:
        """The routes with a higher priority than this one that miss an objective now."""
        if now - self._looked_at > BEHIND_SECONDS:
            self._looked_at = now
            self._behind = [route for route in self.read(now).values() if route.is_behind]
        return [route for route in self._behind if route.priority > priority]

    def watch(
        self, placement: Placement, request: InstanceRequest, arrived_at: float, first: float, output: float
    ) -> None:
        """Follow a request with an objective from its placement on. An answer that comes whole cannot be measured.

        Args:
            placement: the placement of the request.
            request: the request, which has an objective.
            arrived_at: when it arrived, before it waited.
            first: the predicted seconds from the placement to the first token.
            output: the predicted seconds from one token to the next.
        """
        if request.objective is not None and request.streamed:
            self._watched[placement] = _Watched(self._route(request), request.objective, arrived_at, first, output)

    def move(self, placement: Placement, other: Placement) -> None:
        """Continue with another placement of the same request."""
        if (watched := self._watched.pop(placement, None)) is not None:
            self._watched[other] = watched

    @override
    def began(self, placement: Placement, sample: LatencySample | None, now: float) -> None:
        """Count the first token."""
        watched = self._watched.get(placement)
        if watched is None or watched.objective.first_token is None:
            return
        seconds = now - watched.arrived_at
        watched.route.first_token.note(now, kept=seconds <= watched.objective.first_token)
        self.first_errors.learn(watched.first_token, now - placement.picked_at)

    @override
    def finished(
        self, placement: Placement, sample: LatencySample | None, usage: InstanceUsage | None, now: float
    ) -> None:
        """Count the pace of the answer. An answer that did not begin in time counts as late."""
        watched = self._watched.pop(placement, None)
        if watched is None:
            return
        if placement.first_at is None:
            bound = watched.objective.first_token
            if bound is not None and now - watched.arrived_at > bound:
                watched.route.first_token.note(now, kept=False)
            return
        tokens = None if usage is None else usage.output_tokens
        if watched.objective.output_token is None or tokens is None or tokens < 2:
            return
        pace = (now - placement.first_at) / (tokens - 1)
        watched.route.output_token.note(now, kept=pace <= watched.objective.output_token)
        self.output_errors.learn(watched.output_token, pace)

    def refused(self, request: InstanceRequest, now: float, waited: float = float("inf")) -> None:
        """Count a request that got no server as one that missed its objective.

        Args:
            request: the request that was refused, or whose client left.
            now: seconds on the scheduler's clock.
            waited: seconds after which its client left. If that was before the objective, the request does not count.
        """
        objective = request.objective
        if objective is not None and objective.first_token is not None and waited > objective.first_token:
            self._route(request).first_token.note(now, kept=False)

    def _route(self, request: InstanceRequest) -> _Route:
        objective = request.objective or Objective()
        route = self._routes.get(request.route)
        if route is None:
            if len(self._routes) >= MAX_ROUTES:
                # Edits of the configuration add and remove routes; the oldest one is most likely gone.
                del self._routes[next(iter(self._routes))]
            route = self._routes[request.route] = _Route(objective, request.priority)
        route.objective, route.priority = objective, request.priority
        return route
