"""Name of a model or adapter -> where its requests go."""

from random import Random

import msgspec
from msgspec import Struct

from tg_picker.core import Objective, ReportedAdapters
from tg_picker.pools import Destination, PoolView, find_goal
from tg_schema.errors import NotFound


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


def find_place(view: PoolView, model: str, adapter: str | None, draw: Random, told: ReportedAdapters) -> Place:
    """Where a request goes.

    Args:
        view: the pools now.
        model: that is asked for if the request names no adapter.
        adapter: that the request names.
        draw: decides between weights.
        told: knows which adapters servers told of.

    Raises:
        NotFound: no route leads to it.
    """
    to = _resolve(view, model, adapter, draw, told)
    served = view.served.get(to.pool)
    # If only the configuration names the model, servers may use another name for it.
    is_base = to.adapter is None and (not served or to.model in served)
    return Place(to, find_goal(to.slos), to.model if is_base else view.find_base(to.pool))


def _resolve(view: PoolView, model: str, adapter: str | None, draw: Random, told: ReportedAdapters) -> Destination:
    asked = adapter or model
    found = view.catalogue.resolve(
        asked,
        draw,
        served=view.served,
        has=lambda pool, name: told.has(name, view.members.get(pool, ())),
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
