"""Gateway -> client: one row of the list of models that can be asked."""

from typing import Literal

import msgspec


class RoutedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model of a route, as the process that answers sees it.

    Attributes:
        model: its name.
        flow: whose text completion has it.
        state: whether requests go there. "ready" = in the route's order. "cooling" = none for `seconds`. "trying" = the
            next request, or one that runs, shows whether it answers again. "absent" = it has no live processor.
        reason: the type of the error that made it cool down.
        seconds: how long it will not be asked.
        lacks: features of the route's first model that this model lacks; requests that need one of them pass it over.
    """

    model: str
    flow: str
    state: Literal["ready", "cooling", "trying", "absent"]
    reason: str = ""
    seconds: float = 0.0
    lacks: tuple[str, ...] = ()


class ServedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model that can be asked now.

    Attributes:
        model: the name to ask for.
        flow: whose text completion has it.
        features: the features that a request to it may need (`tg_schema.features`); empty = unknown, for a plain peer.
        alias_of: the name of which it is an alias, if it is one.
        loading: whether a request waits until one of its processors has loaded it.
        running: requests that its flow's processors run now, as they announced within the last second or two.
        load: the share of their slots that is taken; None = all are free, or none is known.
        route: the models that may answer, if the name is a route's.
    """

    model: str
    flow: str
    features: tuple[str, ...] = ()
    alias_of: str | None = None
    loading: bool = False
    running: int = 0
    load: float | None = None
    route: tuple[RoutedModel, ...] = ()


class ServedModels(msgspec.Struct, frozen=True):
    """All models that can be asked, as `GET /api/v1/models` answers."""

    models: tuple[ServedModel, ...] = ()
