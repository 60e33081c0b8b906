"""One request on its way through a route: which of its models is asked, and which one next."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from tg_base.client.admission import Announced
from tg_base.protocol import ModelHealth, Route, RoutePlan
from tg_schema import TgError
from tg_schema.features import Feature


class RouteRun:
    """Asks a route's models one after the other, each at most once, while nothing of an answer has come.

    Models without a processor, those that lack a feature of the request and those that cool down are passed over. If
    that leaves none, the request gets the error of the first one that has the features, or of the first; if all of them
    cool down, the one that is cool first is asked all the same.

    Args:
        plan: the route.
        needed: the features that the request needs.
        health: which models cool down.
        find: what the processors of a queue announce.
        bounded: whether admission control applies.

    Attributes:
        plan, bounded: as given.
        route: the queue of the model that is asked.
    """

    __slots__ = (
        "_find", "_health", "_needed", "_rest", "_tried", "_trying", "_until", "bounded", "plan",
        "route",
    )  # fmt: skip

    def __init__(
        self,
        plan: RoutePlan,
        needed: frozenset[Feature],
        health: ModelHealth,
        find: Callable[[str], Announced],
        *,
        bounded: bool,
    ) -> None:
        self.plan = plan
        self.bounded = bounded
        self._needed = needed
        self._health = health
        self._find = find
        self._until = asyncio.get_running_loop().time() + plan.seconds
        self._tried, self._trying = 1, False
        # All of them: a process that has just started has not heard of every processor yet.
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
        """The answer of the model begins: with content, or as this error."""
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


def is_able(route: Route[Any, Any], needed: frozenset[Feature], find: Callable[[str], Announced]) -> bool:
    """Whether there are processors of a queue, and all of them have these features."""
    announced = find(route.request)
    return announced.served and needed <= announced.features
