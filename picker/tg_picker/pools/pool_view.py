"""Catalogue and hosts -> the endpoints of each pool at one moment."""

from collections.abc import Iterable
from random import Random

import msgspec
from msgspec import Struct

from tg_picker.core import Endpoint, Scheduler
from tg_picker.pools.catalogue import Catalogue, Destination, Pool
from tg_picker.pools.host import Host, join_address


class PoolView(Struct, frozen=True):
    """The pools at one moment. Immutable; an edit creates a new view.

    Attributes:
        catalogue: the pools, and the routes and names that lead to them.
        members: the endpoints of each pool, by its name. No address is repeated.
        served: the base models of each pool, as far as the sources name them.
    """

    catalogue: Catalogue = Catalogue()
    members: dict[str, tuple[Endpoint, ...]] = {}
    served: dict[str, frozenset[str]] = {}

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All endpoints, each once."""
        found = {endpoint.address: endpoint for members in self.members.values() for endpoint in members}
        return tuple(found.values())

    def resolve(self, model: str, draw: Random, scheduler: Scheduler, objective: str = "") -> Destination | None:
        """Where a request for a model goes, by what servers and sources report; see `Catalogue.resolve`."""
        return self.catalogue.resolve(
            model,
            draw,
            objective=objective,
            served=self.served,
            has=lambda pool, adapter: scheduler.was_told(adapter, self.members.get(pool, ())),
        )

    def find_base(self, to: Destination) -> str:
        """The base model for a request; "" = the servers of its pool report none, or several."""
        served = self.served.get(to.pool, frozenset())
        # If only the configuration names the model, the servers may use another name for it.
        if to.adapter is None and (not served or to.model in served):
            return to.model
        return next(iter(served)) if len(served) == 1 else ""


def make_view(catalogue: Catalogue, hosts: Iterable[Host]) -> PoolView:
    """The view of a catalogue whose pools select among these hosts."""
    there = tuple(hosts)
    members = {name: _select(pool, there) for name, pool in catalogue.pools.items()}
    served = {name: frozenset(model for each in found for model in each.models) for name, found in members.items()}
    return PoolView(catalogue, members, served)


def _select(pool: Pool, hosts: tuple[Host, ...]) -> tuple[Endpoint, ...]:
    found: dict[str, Endpoint] = {}
    for host in hosts:
        if not pool.selects(host.labels):
            continue
        ports = host.ports or pool.ports
        for port in ports:
            address = join_address(host.address, port)
            # A host with several ports has several servers, so each needs a name of its own.
            name = host.name if host.name and len(ports) == 1 else f"{host.name}:{port}" if host.name else address
            found[address] = _merge(found.get(address), Endpoint(address, name, host.labels, host.models))
    return tuple(found.values())


def _merge(first: Endpoint | None, other: Endpoint) -> Endpoint:
    """Merge an endpoint that two sources name: the first one's name and labels, and the models of both."""
    if first is None:
        return other
    return msgspec.structs.replace(first, models=tuple(dict.fromkeys((*first.models, *other.models))))
