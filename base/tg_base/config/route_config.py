"""[routes.NAME] -> the plans that requestors carry out."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from tg_base.protocol import Route, RoutePlan

Kind = Literal["rate-limited", "unavailable", "timeout", "too-large", "content-filter"]
_ERRORS: Final[dict[Kind, tuple[str, ...]]] = {
    "rate-limited": ("rate-limited",),
    "unavailable": ("unavailable", "incomplete-stream", "protocol", "provider-auth", "bus"),
    "timeout": ("timeout",),
    "too-large": ("too-large", "context-length-exceeded"),
    "content-filter": ("content-filter",),
}
"""The types of `tg_schema.errors` that each kind means."""


class RouteConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A name for several models, of which one answers each request. They may be routes themselves."""

    models: tuple[str, ...] = ()
    """In the order in which they are asked."""
    weights: dict[str, Annotated[float, msgspec.Meta(gt=0, le=1e6)]] = {}
    """In place of `models`: model -> how often it is asked first, in any unit."""
    fallback: tuple[Kind, ...] = ("rate-limited", "unavailable", "timeout")
    """The errors after which the next model is asked, if nothing of an answer has come."""
    tries: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3
    """How many of the models are asked for one request."""
    seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 150.0
    """After this time no other model is asked. By default, two silent models may use up their `clocks.first_token`."""
    shadow: str | None = None
    """A model that gets a copy of requests; its answer is dropped."""
    shadow_percent: Annotated[float, msgspec.Meta(gt=0, le=100)] = 100.0
    """How many of the requests are copied."""

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the models and routes."""
        return self.models or tuple(self.weights)


def make_plans(tables: Mapping[str, RouteConfig], queues: Mapping[str, Route[Any, Any]]) -> dict[str, RoutePlan]:
    """The plan of each route that leads to a model; for any other route, the reader reports an error.

    Args:
        tables: the routes.
        queues: the queue of each model.
    """

    def make(name: str, within: tuple[str, ...]) -> Route[Any, Any] | RoutePlan | None:
        table = tables.get(name)
        if table is None or name in within:
            return queues.get(name) if table is None else None
        found = {each: made for each in table.members if (made := make(each, (*within, name))) is not None}
        if not found:
            return None
        return RoutePlan(
            name,
            tuple(found.values()),
            tuple(table.weights[each] for each in found) if table.weights else (),
            frozenset(kind for each in table.fallback for kind in _ERRORS[each]),
            table.tries,
            table.seconds,
            queues.get(table.shadow or ""),
            table.shadow_percent / 100,
        )

    return {name: made for name in tables if isinstance(made := make(name, ()), RoutePlan)}
