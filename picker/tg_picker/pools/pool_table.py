"""Table of a pool in a configuration -> servers, catalogue and objectives: the short form of resources."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct

from tg_picker.core import Objective
from tg_picker.pools.catalogue import (
    DEFAULT_FAILURE_POLICY,
    Catalogue,
    FailurePolicy,
    Pool,
    Slo,
    SloKind,
    UseCase,
)
from tg_picker.pools.host import Host, read_places
from tg_schema.errors import BadRequest

POOL_LABEL: Final = "pool"
"""The label of a table's servers; its value is the pool's name."""

Name = Annotated[str, Meta(min_length=1, max_length=253)]
_Seconds = Annotated[float, Meta(gt=0, le=3600)]


class PoolObjective(Struct, frozen=True, forbid_unknown_fields=True):
    """The latency objectives of a pool's requests.

    Attributes:
        first_token: seconds from a request to its first token; None = no objective.
        output_token: seconds from a token to the next; None = no objective.
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
    """The objective of a request, each latency with its own share. None = there is none.

    Args:
        slos: the slos of the route; one of a kind.
        first_token: seconds, in place of the route's.
        output_token: seconds, in place of the route's.
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
        models: base models, as clients name them.
        adapters: LoRA adapters, as clients name them.
        priority: the priority of the requests; below 0 they may be shed.
        objective: their latency objectives.
        failure: how requests without an answer in time are retried.
    """

    name: Name
    endpoints: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    models: tuple[Name, ...] = ()
    adapters: tuple[Name, ...] = ()
    priority: int = 0
    objective: PoolObjective = PoolObjective()
    failure: FailurePolicy = DEFAULT_FAILURE_POLICY

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The servers whose addresses are known. `check_tables` comes first."""
        return tuple(
            Host(place, (port,), labels={POOL_LABEL: self.name}, models=self.models)
            for place, port in read_places(self.endpoints, "endpoints")
        )

    @property
    def dns_names(self) -> tuple[Host, ...]:
        """The names of the others."""
        return tuple(
            Host(place, (port,), labels={POOL_LABEL: self.name}, models=self.models)
            for place, port in read_places(self.names, "names")
        )


def check_tables(tables: Sequence[PoolTable], *, ip_only: bool = False) -> None:
    """Check the tables (`pools` of a file or of options) for what types cannot express.

    Args:
        tables: all.
        ip_only: whether a name among `endpoints` is refused.

    Raises:
        BadRequest: a name, a model or an address is there twice, an address is none, or a pool lacks server or model.
    """
    pools: set[str] = set()
    models: dict[str, str] = {}
    for at, table in enumerate(tables):
        where = ("pools", str(at))
        if table.name in pools:
            raise BadRequest(f'there are two pools "{table.name}"; rename or remove one').at(*where, "name")
        pools.add(table.name)
        if not (table.endpoints or table.names):
            raise BadRequest(f'the pool "{table.name}" has no server: set endpoints or names').at(*where)
        if not (table.models or table.adapters):
            sentence = f'nothing leads to the pool "{table.name}": name its models or adapters'
            raise BadRequest(sentence).at(*where)
        read_places(table.endpoints, *where, "endpoints", ip_only=ip_only)
        read_places(table.names, *where, "names")
        for model in (*table.models, *table.adapters):
            first = models.setdefault(model, table.name)
            if first != table.name:
                raise BadRequest(f'"{model}" leads to two pools, {first} and {table.name}; remove one').at(*where)


def refuse_both(*others: Sequence[object]) -> None:
    """Refuse tables beside `resources`, `endpoint_files`, `endpoints` or `names`, whose servers no table has."""
    for option, given in zip(("resources", "endpoint_files", "endpoints", "names"), others, strict=True):
        if given:
            raise BadRequest(f"{option} beside pools: write all of it into pools, or use no pools").at(option)


def make_catalogue(tables: Sequence[PoolTable]) -> Catalogue:
    """The pools of checked tables, and what leads to them."""
    catalogue = Catalogue()
    for table in tables:
        catalogue.pools[table.name] = Pool(table.name, {POOL_LABEL: table.name}, ())
        for names, is_adapter in ((table.models, False), (table.adapters, True)):
            pools, slos = ((table.name, 1),), table.objective.slos
            case = UseCase(table.name, pools, is_adapter, table.priority, slos, table.failure)
            catalogue.cases.update(dict.fromkeys(names, case))
    return catalogue
