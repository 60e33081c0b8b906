"""Table of a pool in a configuration: its servers, models and objectives, as a short form of resources."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from tg_picker.core import Objective
from tg_picker.pools.catalogue import DEFAULT_FAILURE_POLICY, FailurePolicy, Slo, SloKind

Name = Annotated[str, Meta(min_length=1, max_length=253)]
_Seconds = Annotated[float, Meta(gt=0, le=3600)]


class PoolObjective(Struct, frozen=True, forbid_unknown_fields=True):
    """The latency objectives of a pool's requests.

    Attributes:
        first_token: seconds from a request to its first token; None = no objective.
        output_token: seconds from one token to the next; None = no objective.
        share: the share of requests that must meet it.
    """

    first_token: _Seconds | None = None
    output_token: _Seconds | None = None
    share: Annotated[float, Meta(gt=0, lt=1)] = 0.99

    @property
    def slos(self) -> tuple[Slo, ...]:
        """The objectives in the form of a route's."""
        limits: tuple[tuple[SloKind, float | None], ...]
        limits = (("TimeToFirstToken", self.first_token), ("OutputTokenLatency", self.output_token))
        return tuple(Slo(kind, seconds, self.share) for kind, seconds in limits if seconds is not None)


def find_goal(
    slos: Iterable[Slo], first_token: float | None = None, output_token: float | None = None
) -> Objective | None:
    """The objectives of a request; each latency has its own share. None = there are none.

    Args:
        slos: the latency objectives of the route, at most one of each kind.
        first_token: seconds, in place of the route's objective.
        output_token: seconds, in place of the route's objective.
    """
    by_kind = {slo.kind: slo for slo in slos}
    first, output = by_kind.get("TimeToFirstToken"), by_kind.get("OutputTokenLatency")
    first_token = first_token or (None if first is None else first.seconds)
    output_token = output_token or (None if output is None else output.seconds)
    if first_token is None and output_token is None:
        return None
    shares = [slo.share for slo in (first, output) if slo is not None] or [Objective().quantile]
    return Objective(first_token, output_token, shares[0], shares[-1])


class PoolTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A pool, its servers and the models that lead to it.

    Attributes:
        name: the name of the pool, and of the route of its requests.
        endpoints: servers, as "HOST:PORT".
        names: names in DNS, as "NAME:PORT"; each of their addresses is a server.
        models: base models, by the names that clients use.
        adapters: LoRA adapters, by the names that clients use.
        priority: the priority of the requests; requests below 0 may be shed.
        objective: the latency objectives of the requests.
        failure: how a request is retried if no answer comes in time.
    """

    name: Name
    endpoints: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    models: tuple[Name, ...] = ()
    adapters: tuple[Name, ...] = ()
    priority: int = 0
    objective: PoolObjective = PoolObjective()
    failure: FailurePolicy = DEFAULT_FAILURE_POLICY
