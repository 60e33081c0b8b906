"""Server states and objectives -> flow control: whether a request goes to a server now, and to which one."""

from collections.abc import Iterable
from functools import cache

from tg_picker.core.interface import InstanceRequest, Objective
from tg_picker.core.policies import Choice, Scheduler
from tg_picker.core.queue.queue_limits import QueueLimits
from tg_picker.core.queue.slo_attainment import RouteSlo, SloAttainment
from tg_picker.core.state import ServerState

ELSEWHERE = "the best server would miss the objective"
"""The reason of a pick that was not the policy's first choice."""
FAIR_SHARE = 0.5
"""An objective counts as probably missed if the probability of meeting it is lower than this."""


class Capacity:
    """Decides for one request, at one moment, whether a pool has capacity.

    A request goes at once if the best server will probably meet its objective. If that server will probably miss it, a
    request with a priority above 0 goes to the next best server that will probably meet it. Any other request with a
    priority of at least 0 goes if some server of the pool has a short queue, but to the server that the policy likes
    best: going to the short queue would cost adapters and caches. While a route with a higher priority misses its
    objective, a request goes only to a server that would meet that objective too. A server that reports no queue counts
    as one with an empty queue.

    Attributes:
        predict: predicts the seconds until the request's first token on a server.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        attainment: SloAttainment,
        limits: QueueLimits,
        request: InstanceRequest,
        *,
        arrived_at: float,
        now: float,
    ) -> None:
        self.predict = cache(lambda server: scheduler.predict_first_token(request, server, now))
        self._attainment = attainment
        self._limits = limits
        self._request = request
        self._arrived_at = arrived_at
        self._now = now
        self._behind = attainment.behind(request.priority, now)

    def find(self, choice: Choice, servers: Iterable[ServerState]) -> Choice | None:
        """The choice of a server; None = the request should wait.

        Args:
            choice: the policy's choice, with the next best servers.
            servers: the eligible servers.
        """
        if self._behind and not self._suits_behind(choice.server):
            return None
        objective = self._request.objective
        if objective is not None:
            if self._is_kept(choice.server):
                return choice
            if self._request.priority > 0 and min(self._shares(choice.server)) < FAIR_SHARE:
                # The policy's order counts what a choice costs other requests. A request that overtakes the waiting
                # ones may ignore that cost.
                kept = next(filter(self._is_kept, choice.others), None)
                if kept is not None:
                    return choice._replace(server=kept, reasons=(ELSEWHERE,), matched=None)
            if self._request.priority < 0:
                # A sheddable request must not be served late at the cost of others.
                return choice if min(self._shares(choice.server)) >= FAIR_SHARE else None
            if self.is_late(choice.server) and not self._takes_late(choice.server):
                return None
        return choice if any(each.queue < self._limits.max_queued for each in servers) else None

    def is_late(self, server: ServerState) -> bool:
        """Whether the first token will probably miss an objective that the server would meet if it were idle."""
        bound = None if self._request.objective is None else self._request.objective.first_token
        if bound is None or not self._request.streamed or self._shares(server)[0] >= FAIR_SHARE:
            return False
        return server.speed.predict_first_token(self._request.prompt_tokens) <= bound

    def _takes_late(self, server: ServerState) -> bool:
        """Whether a request that is late anyway would make no other request late on this server."""
        tokens = self._request.prompt_tokens
        return not server.backlog or server.speed.is_soon(self.predict(server), tokens, self._request.objective)

    def _suits_behind(self, server: ServerState) -> bool:
        """Whether a server with this request too would still meet the objectives of the routes that miss theirs."""
        if not server.requests:
            return True
        return all(self._keeps_first_token(server, each) and self._keeps_pace(server, each) for each in self._behind)

    def _is_kept(self, server: ServerState) -> bool:
        """Whether the server probably enough meets the request's objectives: with at least their quantiles."""
        objective = self._request.objective or Objective()
        first, output = self._shares(server)
        return first >= objective.quantile and output >= objective.output_quantile

    def _shares(self, server: ServerState) -> tuple[float, float]:
        """The probabilities that a server meets the objectives for the first token and for further tokens."""
        objective, attainment = self._request.objective, self._attainment
        first = output = 1.0
        if objective is not None and objective.first_token is not None:
            left = self._arrived_at + objective.first_token - self._now
            first = attainment.first_errors.share_within(self.predict(server), left)
        if objective is not None and objective.output_token is not None:
            pace = server.speed.predict_pace(server.requests)
            output = attainment.output_errors.share_within(pace, objective.output_token)
        return first, output

    def _keeps_first_token(self, server: ServerState, route: RouteSlo) -> bool:
        if not route.misses_first_token:
            return True
        bound, tokens = route.objective.first_token or 0.0, self._request.prompt_tokens
        if server.speed.is_soon(self.predict(server), tokens, route.objective):
            return True
        # An objective that even an idle server would miss is probably a typing error. It must not stop all other
        # requests.
        return server.speed.predict_first_token(tokens) > bound and route.first_token.share < FAIR_SHARE

    def _keeps_pace(self, server: ServerState, route: RouteSlo) -> bool:
        if not route.misses_output_token:
            return True
        bound, share = route.objective.output_token or 0.0, self._attainment.output_errors.share_within
        if share(server.speed.predict_pace(server.requests), bound) >= route.objective.output_quantile:
            return True
        return max(route.output_token.share, share(server.speed.output_token_seconds, bound)) < FAIR_SHARE
