"""Provider -> its attempts: where one request goes, where it may still go, and the result of each attempt."""

from collections.abc import Sequence
from random import Random

import msgspec
import structlog
from msgspec import Struct, field

from tg_base.llm import name_server
from tg_base.telemetry import trace
from tg_picker.core import Endpoint, InstanceRequest, Scheduler
from tg_picker.pools import Destination, PoolView, Prompt, find_goal
from tg_picker.status import LOST, RequestFacts, RequestRecord, explain
from tg_schema import TextCompletionRequest
from tg_schema.errors import NotFound

log = structlog.get_logger()
_encode = msgspec.json.encode

SHEDDABLE_PRIORITY = -1
"""The highest priority of a request that declares itself sheddable."""

MAX_LOGGED = 100
"""Most characters of a client's text in the log."""


def find_destination(
    view: PoolView, model: str, adapter: str | None, draw: Random, scheduler: Scheduler
) -> Destination:
    """Where a request goes.

    Args:
        view: the current pools.
        model: the model to use if the request names no adapter.
        adapter: the adapter that the request names.
        draw: chooses by weight.
        scheduler: knows which adapters servers have reported.

    Raises:
        NotFound: no route leads to the model or adapter.
    """
    asked = adapter or model
    found = view.resolve(asked, draw, scheduler)
    if found is not None:
        # A name in a rewrite or a table may be a base model's: only the name is known here.
        is_free = adapter is not None and adapter not in view.catalogue.models
        is_adapter = is_free and found.model not in view.served.get(found.pool, ())
        return msgspec.structs.replace(found, adapter=found.model) if is_adapter else found
    # Without resources, no configuration lists the models, and the servers answer 404 for unknown ones.
    if len(view.catalogue.pools) == 1 and not (adapter and view.catalogue.models):
        return Destination(next(iter(view.catalogue.pools)), asked, adapter)
    what = "adapter" if adapter else "model"
    raise NotFound(f"no route leads to the {what} of this request; known are {', '.join(view.catalogue.models)}")


class Order(Struct, eq=False):
    """A request on its way through the servers.

    Attributes:
        request: the request, unchanged.
        model: the model as the client named it.
        destination: where the catalogue sends it.
        wanted: the request for the scheduler.
        body: the body for the servers.
        arrived_at: when it arrived, on the scheduler's clock.
        tried: addresses of the servers that were tried. They are not tried again.
        loaded: addresses of tried servers that had confirmed the adapter before.
        lost: addresses of those among them that answered 404. If no other server is left, each is tried again once.
        is_second_round: whether servers that lost the adapter are tried again.
        left: the servers that were not tried yet at the last pick, including the one picked then.
        unreachable: the number of servers that were left out as unreachable.
        records: the record of each attempt, in order.
    """

    request: TextCompletionRequest
    model: str
    destination: Destination
    wanted: InstanceRequest
    body: bytes
    arrived_at: float
    tried: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    is_second_round: bool = False
    left: Sequence[Endpoint] = ()
    unreachable: int = 0
    records: list[RequestRecord] = field(default_factory=list)

    def note_asked(self, endpoint: Endpoint) -> None:
        """Note that a server is tried, and name it in the record of the call."""
        self.tried.add(endpoint.address)
        name_server(endpoint.name)

    def note_lost(self, address: str) -> None:
        """Note that the server at an address does not have the adapter, if it had confirmed it before."""
        if address in self.loaded and not self.is_second_round:
            self.lost.add(address)

    def begin_second_round(self) -> None:
        """Let the servers that lost the adapter be tried once more."""
        if self.lost:
            self.tried -= self.lost
            self.lost.clear()
            self.is_second_round = True

    @property
    def is_spent(self) -> bool:
        """Whether as many servers were tried as the route allows."""
        most = self.destination.failure.max_attempts
        return most is not None and len(self.records) >= most

    @property
    def route(self) -> str:
        """The route with which times to a first token are compared; the model if there is no route."""
        return self.destination.route or self.destination.model

    @property
    def facts(self) -> RequestFacts:
        """The facts about the next attempt, for the board."""
        size, servers = len(self.body), len(self.left)
        return RequestFacts(trace.find_request(), self.model, self.destination, size, servers, self.unreachable)

    @property
    def last(self) -> RequestRecord:
        """The attempt that answered; if none did, the newest one."""
        begun = (each for each in self.records if each.first_at is not None and each.outcome != LOST)
        return next(begun, self.records[-1])


def describe(request: TextCompletionRequest, view: PoolView, to: Destination, prompt: Prompt) -> InstanceRequest:
    """The request for the scheduler. The server always streams, whatever the client asked for."""
    return InstanceRequest(
        model=view.find_base(to),
        adapter=to.adapter,
        prompt_tokens=prompt.tokens,
        prefix=prompt.fingerprint(to.model, to.adapter),
        priority=min(to.priority, SHEDDABLE_PRIORITY) if request.sheddable else to.priority,
        objective=find_goal(to.slos),
        max_tokens=request.sampling.max_tokens if request.sampling else None,
        flow=request.user or "default-flow",
        route=to.route,
        max_wait=to.failure.max_wait,
    )


def name_model(body: bytes, configured: str, model: str) -> bytes:
    """The body of a request with another `model`, which is its first member."""
    if model == configured:
        return body
    return b'{"model":' + _encode(model) + body[len(b'{"model":' + _encode(configured)) :]


def settle(order: Order, first: RequestRecord, *, won: bool, now: float) -> None:
    """If there are two attempts, note which one lost, before it is cancelled."""
    newest = order.records[-1]
    if newest is not first:
        (newest if won else first).lose(now)


def explain_order(order: Order) -> None:
    """Write one line about a request to the log. It contains nothing of its prompt or answer."""
    last = order.last
    log.info(
        "pool.request",
        model=order.model[:MAX_LOGGED],
        pool=order.destination.pool,
        route=order.destination.route,
        server=last.server,
        reasons=explain(last),
        attempts=len(order.records),
        outcome=last.outcome,
        first=last.first_token_seconds,
        seconds=last.seconds,
    )
