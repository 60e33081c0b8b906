"""Name -> route: which flow's which service a request means, by flow and service or by a model's name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tg_base.protocol import Presence, Route
from tg_schema import TEXT_COMPLETION
from tg_schema.errors import NotFound

DEFAULT_FLOW = "default"
"""The flow of a request that names none (seed)."""
MAX_LISTED_MODELS = 20
"""Models that an error names."""
MAX_NAME_CHARACTERS = 64
"""Of a name that an error repeats."""


@dataclass(frozen=True, slots=True)
class FoundModel:
    """What a model's name means.

    Attributes:
        route: the text completion of the flow that has it.
        model: its own name, as the flow's processors know it; None where nobody has said it.
        adapter: what stood behind the last colon, where the whole is no model's name.
    """

    route: Route[Any, Any]
    model: str | None
    adapter: str | None = None


class Catalogue:
    """All that can be asked for.

    Args:
        routes: every service of every flow.
        serving: the live processors of a queue.
        aliases: further names of models: name to model, or to `base:adapter`.
    """

    def __init__(
        self,
        routes: tuple[Route[Any, Any], ...],
        serving: Callable[[str], Sequence[Presence]],
        aliases: Mapping[str, str],
    ) -> None:
        self.routes = routes
        self._services = {(route.flow, route.spec.name): route for route in routes}
        self._flows = tuple(dict.fromkeys(route.flow for route in routes))
        self._completions = tuple(route for route in routes if route.spec.name == TEXT_COMPLETION.name)
        self._serving = serving
        self._aliases = aliases

    @property
    def flows(self) -> tuple[str, ...]:
        """The flows' ids, in order."""
        return self._flows

    def find_service(self, flow: str, service: str) -> Route[Any, Any]:
        """A flow's service.

        Raises:
            NotFound: no such flow, or the flow has no such service; the message lists what there is.
        """
        route = self._services.get((flow, service))
        if route is not None:
            return route
        if flow not in self._flows:
            raise NotFound(f"no flow has this id; there are: {', '.join(self._flows) or 'none'}")
        services = ", ".join(service for known, service in self._services if known == flow)
        raise NotFound(f"this flow has no service of that name; it has: {services}")

    def find_model(self, name: str | None) -> FoundModel:
        """The route of a model: by its own name, an alias, or `base:adapter` with either as the base.

        Where several flows have the model, it is the first that is served now. Without a name it is the default flow's.

        Raises:
            NotFound: no flow has such a model; the message lists those that there are.
        """
        if not name:
            route = self.find_service(DEFAULT_FLOW, TEXT_COMPLETION.name)
            return FoundModel(route, next(iter(self._models_of(route)), None))
        found = self._resolve(name)
        if found is None:
            short = name[:MAX_NAME_CHARACTERS]
            known = dict.fromkeys(model for route in self._completions for model in self._models_of(route))
            listed = ", ".join([*known, *self._aliases][:MAX_LISTED_MODELS])
            raise NotFound(f"there is no model {short!r}; there are: {listed or 'none'}")
        return found

    def models(self) -> tuple[str, ...]:
        """The names that can be asked now: of models with a live processor, then aliases of them; each once."""
        live = dict.fromkeys(
            model for route in self._completions if self._is_served(route) for model in self._models_of(route)
        )
        aliases = (alias for alias in self._aliases if (found := self._resolve(alias)) and found.model in live)
        return tuple(dict.fromkeys((*live, *aliases)))

    def _resolve(self, name: str) -> FoundModel | None:
        route = self._route_of(name)
        model = name if route else self._aliases.get(name, name)
        if route := route or self._route_of(model):
            return FoundModel(route, model)
        base, _, adapter = model.rpartition(":")
        route = self._route_of(base)
        base = base if route else self._aliases.get(base, base)
        if adapter and (route := route or self._route_of(base)):
            return FoundModel(route, base, adapter)
        return None

    def _route_of(self, model: str) -> Route[Any, Any] | None:
        having = [route for route in self._completions if model and model in self._models_of(route)]
        return next((route for route in having if self._is_served(route)), having[0] if having else None)

    def _models_of(self, route: Route[Any, Any]) -> tuple[str, ...]:
        """Those that processors announce; until one has, that of the configuration."""
        announced = tuple(dict.fromkeys(model for each in self._serving(route.request) for model in each.models))
        return announced or ((route.model,) if route.model else ())

    def _is_served(self, route: Route[Any, Any]) -> bool:
        """A plain peer announces nothing: it is taken to be there."""
        return route.plain or bool(self._serving(route.request))
