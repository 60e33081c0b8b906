"""[routes] -> requestor: the routes that it carries out, which of their models answer now, and which one is asked."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tg_base.client.admission import Announced
from tg_base.protocol import ModelHealth, Route, RoutePlan
from tg_schema import TgError
from tg_schema.errors import NotFound
from tg_schema.features import Feature
from tg_schema.served_model import RoutedModel


class RouteRun:
    """Asks a route's models one after the other, each at most once, as long as no part of an answer has arrived.

    Models without a processor, models that lack a feature of the request, and models that cool down are passed over. If
    no model is left, the request gets the error of the first one that has the features, else of the first. If all
    models are cooling down, the one that may be asked again first is asked at once.

    Args:
        plan: the route.
        needed: the features that the request needs.
        health: which models cool down.
        find: finds what the processors of a queue announce.

    Attributes:
        plan: as given.
        route: the queue of the model that is asked.
    """

    __slots__ = ("_find", "_health", "_needed", "_rest", "_tried", "_trying", "_until", "plan", "route")

    def __init__(
        self, plan: RoutePlan, needed: frozenset[Feature], health: ModelHealth, find: Callable[[str], Announced]
    ) -> None:
        self.plan = plan
        self._needed = needed
        self._health = health
        self._find = find
        self._until = asyncio.get_running_loop().time() + plan.seconds
        self._tried, self._trying = 1, False
        # Take all models: a process that has just started has not heard of every processor yet.
        self._rest = deque(plan.arrange(random.random))
        self.route: Route[Any, Any] = self._take() or self._take_coolest() or self._rest.popleft()

    def go_on(self, error: TgError) -> bool:
        """Whether another model may answer in place of this error; it is `route` from now on."""
        if (
            error.type not in self.plan.errors
            or self._tried >= self.plan.tries
            or asyncio.get_running_loop().time() >= self._until
            or (following := self._take()) is None
        ):
            return False
        self._tried += 1
        self.route = following
        return True

    def note(self, error: TgError | None) -> None:
        """Note that the answer of the model begins, with content or with this error."""
        trial, self._trying = self._trying, False
        self._health.note(self.route.request, error, trial=trial)

    def leave(self) -> None:
        """The request is over, or goes elsewhere before its model has answered."""
        if self._trying:
            self._trying = False
            self._health.leave(self.route.request)

    def _take(self) -> Route[Any, Any] | None:
        for _ in range(len(self._rest)):
            each = self._rest.popleft()
            announced = self._find(each.request)
            self._health.hear(each.request, announced.cools_until, announced.failing)
            if is_able(each, self._needed, self._find) and self._health.begin(each.request):
                self.leave()
                self._trying = bool(self._health.explain(each.request))
                return each
            self._rest.append(each)
        return None

    def _take_coolest(self) -> Route[Any, Any] | None:
        able = [each for each in self._rest if is_able(each, self._needed, self._find)]
        coolest = min(able, key=lambda each: self._health.wait(each.request), default=None)
        if coolest is not None:
            self._rest.remove(coolest)
        return coolest


class RoutePlans:
    """The plans by their names. They follow the edits of the file.

    Args:
        plans: the plans to begin with.
        find: finds what the processors of a queue announce.

    Attributes:
        named: the plans; an edit replaces them as a whole.
    """

    def __init__(self, plans: Mapping[str, RoutePlan], find: Callable[[str], Announced]) -> None:
        self.named = plans
        self._find = find
        self._health = ModelHealth()

    def replace(self, plans: Mapping[str, RoutePlan]) -> None:
        """Use these plans from the next request on."""
        self.named = plans

    def begin(self, route: Route[Any, Any], needed: frozenset[Feature]) -> RouteRun:
        """The way of one request through a route.

        Raises:
            NotFound: there is no such route any more.
        """
        plan = self.named.get(route.plan or "")
        if plan is None:
            raise NotFound(f'there is no route "{route.plan}" any more')
        return RouteRun(plan, needed, self._health, self._find)

    def is_served(self, route: Route[Any, Any]) -> bool:
        """Whether a live processor serves a route: if it has a plan, any of its models."""
        return any(self._find(each.request).served for each in self._list_queues(route))

    def find_live(self, route: Route[Any, Any]) -> Route[Any, Any]:
        """The route; if it has a plan, the first of its models that has a live processor, if there is one."""
        return self.find_able(route, frozenset()) if route.plan is not None else route

    def find_able(self, route: Route[Any, Any], needed: frozenset[Feature]) -> Route[Any, Any]:
        """The first model whose processors have these features, else the first; without a plan the route itself."""
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


def is_able(route: Route[Any, Any], needed: frozenset[Feature], find: Callable[[str], Announced]) -> bool:
    """Whether there are processors of a queue, and all of them have these features."""
    announced = find(route.request)
    return announced.served and needed <= announced.features
