"""[routes] -> requestor: the routes that one requestor carries out, and which of their models answer now."""

from collections.abc import Callable, Mapping
from typing import Any

from tg_base.client.admission import Announced
from tg_base.client.route_run import RouteRun, is_able
from tg_base.protocol import ModelHealth, Route, RoutePlan
from tg_schema.errors import NotFound
from tg_schema.features import Feature
from tg_schema.served_model import RoutedModel


class RoutePlans:
    """The plans by their names. They follow the edits of the file.

    Args:
        plans: those of the beginning.
        find: what the processors of a queue announce.

    Attributes:
        named: the plans; an edit replaces them as a whole.
    """

    def __init__(self, plans: Mapping[str, RoutePlan], find: Callable[[str], Announced]) -> None:
        self.named = plans
        self._find = find
        self._health = ModelHealth()

    def replace(self, plans: Mapping[str, RoutePlan]) -> None:
        """Carry out these from the next request on."""
        self.named = plans

    def begin(self, route: Route[Any, Any], needed: frozenset[Feature], *, bounded: bool) -> RouteRun:
        """The way of one request through a route.

        Raises:
            NotFound: there is no such route any more.
        """
        plan = self.named.get(route.plan or "")
        if plan is None:
            raise NotFound(f'there is no route "{route.plan}" any more')
        return RouteRun(plan, needed, self._health, self._find, bounded=bounded)

    def is_served(self, route: Route[Any, Any]) -> bool:
        """Whether a live processor serves it; of a route with a plan, any of its models."""
        return any(self._find(each.request).served for each in self._list_queues(route))

    def find_live(self, route: Route[Any, Any]) -> Route[Any, Any]:
        """The route; if it has a plan, the first of its models that has a live processor, if there is one."""
        return self.find_able(route, frozenset()) if route.plan is not None else route

    def find_able(self, route: Route[Any, Any], needed: frozenset[Feature]) -> Route[Any, Any]:
        """The first of its models whose processors have these features, or else the first; without a plan the route."""
        queues = self._list_queues(route)
        return next((each for each in queues if is_able(each, needed, self._find)), queues[0])

    def explain(self, name: str) -> tuple[RoutedModel, ...]:
        """The models of a route in their order, and why each is asked or not; empty if there is no such route."""
        plan = self.named.get(name)
        if plan is None:
            return ()
        first = self._find(plan.queues[0].request).features
        return tuple(self._explain(queue, first) for queue in plan.queues)

    def _explain(self, queue: Route[Any, Any], first: frozenset[str]) -> RoutedModel:
        announced, model = self._find(queue.request), queue.model or ""
        if not announced.served:
            return RoutedModel(model, queue.flow, "absent")
        self._health.hear(queue.request, announced.cools_until, announced.failing)
        lacks, reason = tuple(sorted(first - announced.features)), self._health.explain(queue.request)
        if not reason:
            return RoutedModel(model, queue.flow, "ready", lacks=lacks)
        seconds = round(self._health.wait(queue.request), 3)
        return RoutedModel(model, queue.flow, "cooling" if seconds else "trying", reason, seconds, lacks)

    def _list_queues(self, route: Route[Any, Any]) -> tuple[Route[Any, Any], ...]:
        plan = self.named.get(route.plan or "")
        return (route,) if plan is None else plan.queues
