"""Door or pool provider -> servers: picks the server of each request, and counts each server's requests."""

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from random import Random
from weakref import WeakValueDictionary

from tg_picker.core.interface import BLOCK_TOKENS, Endpoint, InstanceRequest, LoadReport
from tg_picker.core.policies.admission import ADMISSIONS, FRESH_LOOKS, Admission
from tg_picker.core.policies.policies import DEFAULT_POLICY, load_policy, requests_of
from tg_picker.core.policies.policy import Choice, Policy, Refusal, SchedulingContext
from tg_picker.core.policies.predicted_wait import predict_cost
from tg_picker.core.state import (
    MAX_FALLBACKS,
    EngineSpeed,
    Follower,
    MissingAdapters,
    OutputEstimates,
    Pick,
    Placement,
    Rejection,
    ServerState,
)

STALE_SECONDS = 2.0
"""An older report is ignored, unless servers are scraped less often than this."""
_SWEEP_SECONDS = 0.2
"""Interval of the search for stale reports."""
NO_ENDPOINTS_RETRY_SECONDS = 1.0
SATURATED_RETRY_SECONDS = 1.0


_EngineKey = tuple[str, ...] | frozenset[tuple[str, str]]


class Scheduler:
    """Picks servers. Not thread-safe: it belongs to one event loop. It never waits.

    Args:
        policy: a policy, or its name.
        admission: the rule that refuses sheddable requests before the policy sees them, or its name.
        random: decides ties; the same seed and the same calls give the same picks.

    Attributes:
        missing: adapters for which servers answered 404.
        followers: are notified of each placement, of its progress, and of all events that may free capacity.
    """

    def __init__(
        self,
        policy: str | Policy = DEFAULT_POLICY,
        admission: str | Admission = "always",
        *,
        random: Random | None = None,
    ) -> None:
        self._policy = load_policy(policy) if isinstance(policy, str) else policy
        self._admission = ADMISSIONS[admission] if isinstance(admission, str) else admission
        self._random = Random() if random is None else random  # noqa: S311 - it decides ties
        self.missing = MissingAdapters()
        self.followers: list[Follower] = [self.missing]
        self._servers: dict[str, ServerState] = {}
        self._estimates = OutputEstimates()
        self._engines = WeakValueDictionary[_EngineKey, EngineSpeed]()
        self._swept_at = float("-inf")
        self._last: tuple[Sequence[Endpoint], str, list[ServerState]] = ((), "", [])

    def pick(self, request: InstanceRequest, endpoints: Sequence[Endpoint], now: float) -> Pick | Rejection:
        """Pick one of the endpoints, and count the request there until its placement ends.

        Args:
            request: the request to place.
            endpoints: the eligible servers: ready, in the request's subset, not tried before.
            now: seconds on a monotonic clock, the same as of `LoadReport.read_at`.
        """
        choice = self.choose(request, endpoints, now)
        return choice if isinstance(choice, Rejection) else self.place(request, choice, now)

    def choose(
        self, request: InstanceRequest, endpoints: Sequence[Endpoint], now: float, *, admitted: bool = False
    ) -> Choice | Rejection:
        """Choose one of the endpoints without counting the request yet. See `pick`.

        Args:
            request: the request to place.
            endpoints: the eligible servers.
            now: seconds on the scheduler's clock.
            admitted: whether the admission rule has already let this request through.
        """
        if not endpoints:
            return Rejection("no-endpoints", 503, NO_ENDPOINTS_RETRY_SECONDS)
        if now - self._swept_at > _SWEEP_SECONDS:
            self.expire(now)
        servers = self._eligible(request.model, endpoints)
        if not servers:
            return Rejection("model-not-found", 404)
        if not admitted and not self._admission(request, servers, now, self._random):
            return Rejection("saturated", 429, SATURATED_RETRY_SECONDS)
        choice = self._policy.choose(self._situation(request, servers, now))
        if isinstance(choice, Refusal):
            return Rejection(choice.reason, 429, choice.retry_after)
        return choice if choice.others else choice._replace(others=nsmallest(MAX_FALLBACKS + 1, servers, requests_of))

    def place(self, request: InstanceRequest, choice: Choice, now: float) -> Pick:
        """Count a request at the chosen server, until its placement ends."""
        server = choice.server
        matched = server.prefixes.match(request.prefix) if choice.matched is None else choice.matched
        cached = matched * BLOCK_TOKENS
        placement = Placement(server, request, self._estimates, cached, now, followers=self.followers)
        for each in self.followers:
            each.placed(placement, request.prefix, matched)
        return Pick(server.endpoint, choice.others, choice.reasons, placement)

    def adopt(self, endpoint: Endpoint, request: InstanceRequest, cached: int, room: int, now: float) -> Placement:
        """Count a request that another scheduler placed, until its placement ends.

        The other scheduler reports its progress.

        Args:
            endpoint: the server.
            request: the request as the other scheduler described it.
            cached: tokens of its prompt that the server need not compute.
            room: tokens of its prompt that no other request on the server used.
            now: seconds on the scheduler's clock.
        """
        return Placement(
            self.server(endpoint), request, self._estimates, cached, now, reported_room=room, followers=self.followers
        )

    def predict_first_token(self, request: InstanceRequest, server: ServerState, now: float) -> float:
        """Predict the seconds until the first token of the answer, if the request were placed on this server now."""
        _, wait, _ = predict_cost(server, self._situation(request, (server,), now))
        return wait

    def observe(self, endpoint: Endpoint, report: LoadReport) -> None:
        """Take a server's report. One that is older than the last is ignored. A later start time means a restart."""
        server = self.server(endpoint)
        if server.report is None or report.read_at >= server.report.read_at:
            if (began := report.started_at) is not None:
                # Only a later start counts: several processes that share an address report their starts alternately.
                if server.started_at is not None and began > server.started_at:
                    self.restarted(endpoint)
                server.started_at = max(began, server.started_at or began)
            server.observe(report)
            if (adapters := report.adapters) is not None:
                names = (*adapters.active, *(adapters.resident or ()))
                self.missing.find(endpoint.address, names, report.read_at)
            self._notify_followers()

    def expire(self, now: float) -> None:
        """Forget reports that are too old. `pick` calls this itself; a page that shows servers must call it first."""
        self._swept_at = now
        self.missing.expire(now)
        for server in self._servers.values():
            server.speed.fade(now)
            report = server.report
            if report is not None and now - report.read_at > max(STALE_SECONDS, FRESH_LOOKS * report.interval):
                server.expire()

    @property
    def servers(self) -> tuple[ServerState, ...]:
        """All servers about which something is known; do not change them."""
        return tuple(self._servers.values())

    def server(self, endpoint: Endpoint) -> ServerState:
        """The state of a server, for pages and metrics; do not change it."""
        known = self._servers.get(endpoint.address)
        if known is None:
            engine = self._engines.setdefault(_engine_key(endpoint), EngineSpeed())
            known = self._servers[endpoint.address] = ServerState(endpoint, engine)
        known.endpoint = endpoint  # it may have a new name or new labels
        return known

    def was_told(self, adapter: str, endpoints: Iterable[Endpoint]) -> bool:
        """Whether one of these servers reported an adapter, and has not answered 404 for it since."""
        known = (self._servers.get(each.address) for each in endpoints)
        return any(adapter in server.adapters.told for server in known if server is not None)

    def forget_adapter(self, endpoint: Endpoint, adapter: str, now: float, *, by_peer: bool = False) -> None:
        """Note that a server does not have an adapter, because it answered 404.

        Ignored for a server that has left the pool.

        Args:
            endpoint: the server that answered.
            adapter: the requested adapter.
            now: seconds on the scheduler's clock.
            by_peer: whether another scheduler reported it; then no follower is notified.
        """
        server = self._servers.get(endpoint.address)
        if server is not None:
            server.adapters.discard(adapter)
            self.missing.note(endpoint.address, adapter, now)
            if not by_peer:
                for each in self.followers:
                    each.lacked(endpoint.address, adapter)

    def restarted(self, endpoint: Endpoint) -> None:
        """Note that a server lost its adapters and its cache."""
        self.server(endpoint).restart()
        self.missing.forget(endpoint.address)

    def retain(self, endpoints: Iterable[Endpoint]) -> None:
        """Forget all servers but these. Placements on forgotten servers may still report their progress.

        A server that left may reappear briefly when a late answer ends; the next call forgets it again.
        """
        kept = {endpoint.address for endpoint in endpoints}
        for address in self._servers.keys() - kept:
            del self._servers[address]
            self.missing.forget(address)
        self._last = ((), "", [])
        self._notify_followers()

    def _notify_followers(self) -> None:
        for each in self.followers:
            each.changed()

    def _situation(self, request: InstanceRequest, servers: Sequence[ServerState], now: float) -> SchedulingContext:
        return SchedulingContext(request, servers, self._estimates.expect(request), now, self._random)

    def _eligible(self, model: str, endpoints: Sequence[Endpoint]) -> list[ServerState]:
        # Nearly every request comes with the same tuple. A tuple is immutable, so the result for it remains valid.
        last, last_model, eligible = self._last
        if endpoints is last and model == last_model:
            return eligible
        servers = [self.server(each) for each in endpoints if each.serves(model)]
        if isinstance(endpoints, tuple):
            self._last = endpoints, model, servers
        return servers


def _engine_key(endpoint: Endpoint) -> _EngineKey:
    """The key by which servers share a speed: they are assumed to be equally fast until they prove otherwise."""
    return endpoint.models or frozenset(endpoint.labels.items())
