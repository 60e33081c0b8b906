"""Provider -> its attempts: one request, where it may still go, and what became of each attempt."""

from collections.abc import Sequence

from msgspec import Struct, field

from tg_base.instances import Endpoint, InstanceRequest
from tg_base.pool_status import RequestFacts, RequestRecord
from tg_base.pools import Destination
from tg_base.telemetry import trace
from tg_schema import TextCompletionRequest


class Order(Struct, eq=False):
    """A request on its way.

    Attributes:
        request: as it came.
        model: as its client named it.
        place: where the catalogue sent it.
        wanted: what the scheduler is told.
        body: what servers are sent.
        arrived_at: on the scheduler's clock.
        tried: the addresses of the servers that were asked.
        left: the servers that were not asked yet, when it was looked last; the one picked then is among them.
        unreachable: servers that were left out, since nobody can reach them.
        records: of each attempt, in order.
    """

    request: TextCompletionRequest
    model: str
    place: Destination
    wanted: InstanceRequest
    body: bytes
    arrived_at: float
    tried: set[str] = field(default_factory=set)
    left: Sequence[Endpoint] = ()
    unreachable: int = 0
    records: list[RequestRecord] = field(default_factory=list)

    @property
    def route(self) -> str:
        """Whose times are compared: the route, or the model where there is none."""
        return self.place.route or self.place.model

    @property
    def facts(self) -> RequestFacts:
        """What the board is told of the next attempt."""
        size, servers = len(self.body), len(self.left)
        return RequestFacts(trace.find_request(), self.model, self.place, size, servers, self.unreachable)

    @property
    def last(self) -> RequestRecord:
        """The attempt that answered; if none did, the newest."""
        begun = (each for each in self.records if each.first_at is not None and not each.lost)
        return next(begun, self.records[-1])
