"""One service of one flow, as both ends know it: its topics and its records."""

from dataclasses import dataclass
from typing import Generic

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
        keep: how long its streams are kept at a gateway, as in the header by which a client asks for that; None = they
            are not.
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
