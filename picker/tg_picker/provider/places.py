"""Name of a model or adapter -> where its requests go: cached until the pools change, unless weights draw each time."""

from random import Random
from typing import Final

import msgspec
from msgspec import Struct

from tg_picker.core import Objective, Scheduler
from tg_picker.pools import Destination, PoolView, find_goal
from tg_schema.errors import NotFound

MAX_PLACES: Final = 1_000
"""How many names are kept; if no configuration lists the adapters, clients make names up."""


class Place(Struct, frozen=True):
    """Where the requests for a name go.

    Attributes:
        destination: by the catalogue.
        objective: the objective of its requests.
        base: the model that the servers have for it.
    """

    destination: Destination
    objective: Objective | None
    base: str


class Places:
    """The places of one pool provider.

    Args:
        model: that is asked for if a request names no adapter.
        draw: decides between weights.
        scheduler: knows which adapters servers told of.
    """

    def __init__(self, model: str, draw: Random, scheduler: Scheduler) -> None:
        self._model = model
        self._draw = draw
        self._scheduler = scheduler
        self._view = PoolView()
        self._is_certain = False
        self._kept: dict[str | None, Place] = {}

    def find(self, view: PoolView, adapter: str | None) -> Place:
        """Where a request goes.

        Args:
            view: the pools now.
            adapter: that the request names.

        Raises:
            NotFound: no route leads to it.
        """
        if view is not self._view:
            self._view, self._is_certain = view, view.catalogue.is_certain
            self._kept.clear()
        place = self._kept.get(adapter)
        if place is None:
            place = self._make(view, adapter)
            if self._is_certain and not self._is_told(view, adapter, place.destination):
                if len(self._kept) >= MAX_PLACES:
                    self._kept.clear()
                self._kept[adapter] = place
        return place

    def _make(self, view: PoolView, adapter: str | None) -> Place:
        to = self._resolve(view, adapter)
        served = view.served.get(to.pool)
        # If only the configuration names the model, servers may use another name for it.
        is_base = to.adapter is None and (not served or to.model in served)
        base = to.model if is_base else view.find_base(to.pool)
        return Place(to, find_goal(to.slos), base)

    def _is_told(self, view: PoolView, asked: str | None, to: Destination) -> bool:
        """Whether only the servers know if it is an adapter, and may report it later."""
        return not view.served.get(to.pool) and asked in view.catalogue.models and asked not in view.catalogue.adapters

    def _resolve(self, view: PoolView, adapter: str | None) -> Destination:
        asked = adapter or self._model
        found = view.catalogue.resolve(
            asked,
            self._draw,
            served=view.served,
            has=lambda pool, name: self._scheduler.told.has(name, view.members.get(pool, ())),
        )
        if found is not None:
            # A name in a rewrite or a table may be a base model's: only the name is known here.
            is_free = adapter is not None and adapter not in view.catalogue.models
            is_adapter = is_free and found.model not in view.served.get(found.pool, ())
            return msgspec.structs.replace(found, adapter=found.model) if is_adapter else found
        # Without resources no configuration lists the models: the servers answer 404 for unknown ones.
        if len(view.catalogue.pools) == 1 and not (adapter and view.catalogue.models):
            return Destination(next(iter(view.catalogue.pools)), asked, adapter)
        what = "adapter" if adapter else "model"
        raise NotFound(f"no route leads to the {what} of this request; known are {', '.join(view.catalogue.models)}")
