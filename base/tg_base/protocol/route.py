"""One service of one flow, as both ends know it; and which of several models answers, as [routes.NAME] says."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic

from tg_schema import ServiceSpec
from tg_schema.service_spec import Req, Resp


@dataclass(frozen=True, slots=True)
class Route(Generic[Req, Resp]):
    """Where requests of a flow's service go.

    Attributes:
        flow: the flow's id.
        spec: the service and its records.
        request: full topic name of the work queue.
        response: full topic name on which a request without an inbox of its own is answered.
        plain: whether the processors are plain peers, without links and presence (TrustGraph's, for example); the
            requestor then reads `response` as well.
        queue: how many requests of one requestor may be queued; None = in proportion to the announced capacity.
        model: the model that the configuration binds to it, or the route; only text completion has one.
        plan: the name of the route that a requestor carries out in place of asking `request`, which is its first
            model's queue (`RoutePlan`); None = there is none.
        keep: how long a gateway keeps its streams, in the form of the header by which a client asks for that; None = it
            does not.
        attach: whether a request gets the answer of an equal one whose client has left.
    """

    flow: str
    spec: ServiceSpec[Req, Resp]
    request: str
    response: str
    plain: bool = False
    queue: int | None = None
    model: str | None = None
    plan: str | None = None
    keep: str | None = None
    attach: bool = False


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """The plan behind a route's name. It never refers to itself.

    Attributes:
        name: its name, which requests give as their model.
        members: queues of models, and other routes.
        weights: how likely each member is the first, in any unit; empty = the members are in order.
        errors: types of errors after which the next model is asked.
        tries: how many models may be asked for one request.
        seconds: how long after the request's arrival another model may be asked.
        shadow: the queue that gets a copy of some requests; None = there is none.
        share: how many requests are copied, from 0 to 1.
    """

    name: str
    members: tuple["Route[Any, Any] | RoutePlan", ...]
    weights: tuple[float, ...] = ()
    errors: frozenset[str] = frozenset()
    tries: int = 3
    seconds: float = 150.0
    shadow: Route[Any, Any] | None = None
    share: float = 0.0

    @property
    def queues(self) -> tuple[Route[Any, Any], ...]:
        """The queues of all its models in the order of the configuration, each once."""
        return tuple(dict.fromkeys(self._walk(self.members)))

    @property
    def followed(self) -> tuple[Route[Any, Any], ...]:
        """The queues after which another one may be asked."""
        queues = self.queues
        return queues if self.weights and len(queues) > 1 else queues[:-1]

    @property
    def entry(self) -> Route[Any, Any]:
        """The route for a caller: the first queue, under this plan's name."""
        first = self.queues[0]
        return Route(
            first.flow, first.spec, first.request, first.response, queue=first.queue, model=self.name, plan=self.name
        )

    def arrange(self, draw: Callable[[], float]) -> tuple[Route[Any, Any], ...]:
        """The queues in the order in which one request asks them; `draw` gives random numbers from 0 to 1."""
        members = self.members
        if self.weights:
            # Efraimidis and Spirakis: a sample without replacement by weight is a sort by these keys.
            keys = {id(each): draw() ** (1 / weight) for each, weight in zip(members, self.weights, strict=True)}
            members = tuple(sorted(members, key=lambda each: -keys[id(each)]))
        return tuple(dict.fromkeys(self._walk(members, draw)))

    @staticmethod
    def _walk(
        members: tuple["Route[Any, Any] | RoutePlan", ...], draw: Callable[[], float] | None = None
    ) -> Iterator[Route[Any, Any]]:
        for each in members:
            if not isinstance(each, RoutePlan):
                yield each
            else:
                yield from each.queues if draw is None else each.arrange(draw)
