"""Configuration -> the sources that describe pools and servers, validated: files, addresses and names, or tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from tg_picker.pools.catalogue import Catalogue, Pool, UseCase
from tg_picker.pools.host import Host, read_hosts
from tg_picker.pools.pool_table import PoolTable
from tg_schema.errors import BadRequest

POOL_LABEL: Final = "pool"
"""The label of a table's servers; its value is the pool's name."""


def make_one_pool(name: str) -> Catalogue:
    """The catalogue if there are neither resources nor tables: all hosts are one pool, which accepts any model."""
    return Catalogue({name: Pool(name, {}, ())})


class PoolSources(Struct, frozen=True, kw_only=True):
    """The sources that describe pools and endpoints.

    Attributes:
        resources: YAML files of routes, pools, objectives and rewrites.
        endpoint_files: files of servers, in llm-d's or AIBrix's format.
        hosts: servers that are known from the start.
        names: servers by name in DNS; a name may occur with several ports.
        catalogue: the pools and what leads to them, if there are no resources.
        ip_only: whether Envoy calls the servers. Envoy does not resolve names in endpoint files, and has hedging of its
            own, so both are refused here.
        http1_only: whether a pool with another `appProtocol` is refused, because our client does not speak it.
    """

    resources: tuple[Path, ...] = ()
    endpoint_files: tuple[Path, ...] = ()
    hosts: tuple[Host, ...] = ()
    names: tuple[Host, ...] = ()
    catalogue: Catalogue = make_one_pool("default")
    ip_only: bool = False
    http1_only: bool = False


def read_sources(
    *,
    pools: Sequence[PoolTable],
    resources: Sequence[Path],
    endpoint_files: Sequence[Path],
    endpoints: Sequence[str],
    names: Sequence[str],
    labels: Mapping[str, str] = MappingProxyType({}),
    models: tuple[str, ...] = (),
    default: str = "default",
    ip_only: bool = False,
) -> PoolSources:
    """Read the options of these names. Tables of pools replace the four options that follow them.

    Args:
        pools: pools with their servers and models.
        resources: YAML files of routes, pools, objectives and rewrites.
        endpoint_files: files of servers, in llm-d's or AIBrix's format.
        endpoints: servers, as "HOST:PORT".
        names: names in DNS, as "NAME:PORT".
        labels: the labels of `endpoints` and `names`.
        models: the base models of `endpoints` and `names`.
        default: the name of the pool if neither tables nor resources name one.
        ip_only: whether Envoy calls the servers; if not, our client does, over HTTP/1.1.

    Raises:
        BadRequest: there is no server, an address is malformed or repeated, or a table is wrong.
    """
    others = {"resources": resources, "endpoint_files": endpoint_files, "endpoints": endpoints, "names": names}
    if pools:
        for option, given in others.items():
            if given:
                raise BadRequest(f"{option} cannot stand beside pools: move it into pools, or remove pools").at(option)
        return _read_tables(pools, ip_only=ip_only)
    if not (endpoint_files or endpoints or names):
        raise BadRequest("no model servers are configured: set endpoints, names, endpoint_files or pools").at("pools")
    return PoolSources(
        resources=tuple(resources),
        endpoint_files=tuple(endpoint_files),
        hosts=read_hosts(endpoints, "endpoints", labels=labels, models=models, ip_only=ip_only),
        names=read_hosts(names, "names", labels=labels, models=models),
        catalogue=make_one_pool(default),
        ip_only=ip_only,
        http1_only=not ip_only,
    )


def _read_tables(tables: Sequence[PoolTable], *, ip_only: bool) -> PoolSources:
    """The servers of tables, and the catalogue of their pools. Checks what types cannot express."""
    catalogue = Catalogue()
    hosts: tuple[Host, ...] = ()
    names: tuple[Host, ...] = ()
    for at, table in enumerate(tables):
        where, labels = ("pools", str(at)), {POOL_LABEL: table.name}
        if table.name in catalogue.pools:
            raise BadRequest(f'there are two pools "{table.name}"; rename or remove one').at(*where, "name")
        if not (table.endpoints or table.names):
            raise BadRequest(f'the pool "{table.name}" has no server: set endpoints or names').at(*where)
        catalogue.pools[table.name] = Pool(table.name, labels, ())
        hosts += read_hosts(table.endpoints, *where, "endpoints", labels=labels, models=table.models, ip_only=ip_only)
        names += read_hosts(table.names, *where, "names", labels=labels, models=table.models)
        _add_cases(catalogue, table, *where)
    return PoolSources(hosts=hosts, names=names, catalogue=catalogue, ip_only=ip_only)


def _add_cases(catalogue: Catalogue, table: PoolTable, *where: str) -> None:
    if not (table.models or table.adapters):
        raise BadRequest(f'nothing leads to the pool "{table.name}": name its models or adapters').at(*where)
    pools, slos = ((table.name, 1),), table.objective.slos
    for models, is_adapter in ((table.models, False), (table.adapters, True)):
        case = UseCase(table.name, pools, is_adapter, table.priority, slos, table.failure)
        for model in models:
            first = catalogue.cases.setdefault(model, case).route
            if first != table.name:
                raise BadRequest(f'"{model}" leads to two pools, {first} and {table.name}; remove one').at(*where)
            catalogue.cases[model] = case
