"""Name -> route: finds the service that a request means, by flow and service or by a model's name."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Self

import msgspec

from tg_base.client import AnnouncedRoutes, Requestor
from tg_base.config import GatewayConfig
from tg_base.protocol import Presence, Route, RoutePlan
from tg_schema import TEXT_COMPLETION, TextCompletionRequest
from tg_schema.errors import BadRequest, NotFound
from tg_schema.features import Feature, describe_missing
from tg_schema.served_model import RoutedModel, ServedModel

DEFAULT_FLOW = "default"
"""The flow of a request that names none, if there is one of this id."""
MAX_LISTED_MODELS = 20
"""Models that an error names."""
MAX_NAME_CHARACTERS = 64
"""Characters of a name that an error repeats."""
MAX_ANNOUNCED_MODELS = 1000
"""Models of one processor that can be asked; it announces every second what anybody who may write to the bus likes."""
MAX_MODEL_CHARACTERS = 256
"""Characters of a model's name that a processor announces; a longer one cannot be asked."""


@dataclass(frozen=True, slots=True)
class FoundModel:
    """The meaning of a model's name.

    Attributes:
        route: the text completion of the flow that has the model; or that carries out a route.
        model: its own name, as the flow's processors know it; None = no name was given, or it is a route's.
        adapter: the part after the last colon, if the whole is not a model's name.
        features: what all live processors of its queue announce (`tg_schema.features`); empty while there is none. Of
            a route, those of its first live model: others that lack one are passed over by requests that need it.
        loading: whether each of them has yet to load the model.
        busy: whether no live processor has room for a request.
        processors: the number of live processors.
    """

    route: Route[Any, Any]
    model: str | None
    adapter: str | None = None
    features: frozenset[str] = frozenset()
    loading: bool = False
    busy: bool = False
    processors: int = 0

    @property
    def name(self) -> str | None:
        """The name by which it is found in its flow even when an edit has changed the aliases; None as for `model`."""
        return self.route.plan or ":".join(filter(None, (self.model, self.adapter))) or None

    def may_have(self, feature: Feature) -> bool:
        """Whether to ask the model for this feature if only the door's default wants it.

        A model with unknown features is asked too: it refuses by name what it lacks, so nothing changes silently. A
        plain peer is never asked.
        """
        return feature in self.features or not (self.features or self.route.plain)

    def check(self, *requests: TextCompletionRequest) -> None:
        """Refuse a request that a plain peer cannot serve. For other processors, the requestor refuses it later.

        Raises:
            BadRequest: the requests need features, and the model is a plain peer's.
        """
        needed = frozenset[str]().union(*(request.features for request in requests))
        if needed and self.route.plain:
            raise BadRequest(describe_missing(needed))


@dataclass(frozen=True, slots=True)
class FoundAdapter:
    """A LoRA adapter that can be asked for now.

    Attributes:
        name: the name by which it can be asked for, like a model.
        base: its base model.
        root: where it was loaded from, as its operator wrote it.
    """

    name: str
    base: str
    root: str


def _explain_none(name: str) -> tuple[RoutedModel, ...]:
    """The default of `explain`: nothing is known of routes."""
    return ()


class Catalogue:
    """The services, models and adapters that can be asked. An edit of the file makes a new one.

    Args:
        routes: every service of every flow.
        serving: returns the live processors of a queue.
        aliases: further names of models: name to model, to `base:adapter`, or to a route.
        plans: the routes by name.
        explain: returns the states of a route's models.
        announced: returns the routes of processors' flows, the same object until they change. They come last: a name in
            the file never means one of them. None = only models that the file names can be asked.

    Attributes:
        routes: as given.
        explain: as given.
        flows: their ids, in order.
    """

    def __init__(
        self,
        routes: tuple[Route[Any, Any], ...],
        serving: Callable[[str], Sequence[Presence]],
        aliases: Mapping[str, str],
        plans: Mapping[str, RoutePlan] = MappingProxyType({}),
        explain: Callable[[str], tuple[RoutedModel, ...]] = _explain_none,
        *,
        announced: Callable[[], tuple[Route[Any, Any], ...]] | None = None,
    ) -> None:
        self.routes = routes
        self._services = {(route.flow, route.spec.name): route for route in routes}
        self.flows = tuple(dict.fromkeys(route.flow for route in routes))
        self._default_flow = DEFAULT_FLOW if DEFAULT_FLOW in self.flows else next(iter(self.flows), "")
        completions = (route for route in routes if route.spec.name == TEXT_COMPLETION.name)
        self._completions = tuple(route for route in completions if route.plan is None)
        self._configured = frozenset(route.model for route in self._completions if route.model)
        self._serving = serving
        self._aliases = aliases
        self._plans = plans
        self.explain = explain
        self._announced = announced
        self._seen: tuple[Route[Any, Any], ...] = ()
        self._unnamed: tuple[Catalogue, ...] = ()

    @classmethod
    def of(cls, requestor: Requestor, routes: tuple[Route[Any, Any], ...], config: GatewayConfig) -> Self:
        """What a requestor can ask now and later, after these routes and the aliases of this configuration."""
        plans, presence = requestor.routes, requestor.presence
        announced = AnnouncedRoutes(presence, requestor.topics).find if config.announced else None
        return cls(routes, presence.serving, config.aliases, plans.named, plans.explain, announced=announced)

    @property
    def default_flow(self) -> str:
        """The flow of a request that names none: `default`, or the first if no flow has this id."""
        announced = (unnamed.default_flow for unnamed in self._find_unnamed())
        return self._default_flow or next(announced, DEFAULT_FLOW)

    @property
    def all_routes(self) -> tuple[Route[Any, Any], ...]:
        """`routes`, and those of flows that only processors name."""
        return self.routes + tuple(route for unnamed in self._find_unnamed() for route in unnamed.routes)

    def copy(self) -> "Catalogue":
        """A picklable copy of the current state, for a request that is parsed in another process."""
        rest = tuple(route for unnamed in self._find_unnamed() for route in unnamed.routes)
        served = {route.request: tuple(self._serving(route.request)) for route in (*self._completions, *rest)}
        # A queue that is not among them has no processors. The method is bound to a dict, so that it can be pickled.
        serving: Mapping[str, Sequence[Presence]] = defaultdict(tuple, served)
        return Catalogue(
            self.routes, serving.__getitem__, self._aliases, dict(self._plans), announced=partial(tuple, rest)
        )

    def find_service(self, flow: str | None, service: str, plan: str | None = None) -> Route[Any, Any]:
        """A flow's service, or a route of this name as the flow has it. Without a flow, the default flow's.

        Raises:
            NotFound: no such flow, or the flow has no such service; the message lists what there is.
        """
        flow = flow or self._default_flow or self.default_flow
        route = self._services.get((flow, service)) if plan is None else self._find_entry(plan, flow)
        if route is None and plan is None:
            rest = (route for unnamed in self._find_unnamed() for route in unnamed.routes)
            route = next((each for each in rest if (each.flow, each.spec.name) == (flow, service)), None)
        if route is not None:
            return route
        if flow not in self.flows:
            raise NotFound(f"no flow has this id; there are: {', '.join(self.flows) or 'none'}")
        services = ", ".join(service for known, service in self._services if known == flow)
        raise NotFound(f"this flow has no service {service[:MAX_NAME_CHARACTERS]!r}; it has: {services}")

    def find_anywhere(self, service: str) -> Route[Any, Any]:
        """A service that one flow binds for all.

        Raises:
            NotFound: no flow binds it.
        """
        for route in self.routes:
            if route.spec.name == service:
                return route
        raise NotFound(f"no flow has the service {service!r}: bind it in one flow of the gateway's configuration")

    def find_model(self, name: str | None, preferred: str = "") -> FoundModel:
        """The route of a model: by its own name, an alias, `base:adapter` with either as base, or an adapter's name.

        If several flows have the model, the flow `preferred` wins, else the first that is served now. Without a name,
        the model is the default flow's. The same holds for a URL in place of a name, which clients of single-model
        servers send.

        Raises:
            NotFound: no flow has such a model; the message lists the existing ones.
        """
        if not name:
            route = self.find_service(None, TEXT_COMPLETION.name)
            return self._find_planned(route) or self._find(route, next(iter(self._models_of(route)), None))
        found = self.resolve(name, preferred)
        if found is None and name.startswith(("http://", "https://")):
            return self.find_model(None)
        if found is None:
            short = name[:MAX_NAME_CHARACTERS]
            asked = [route for route in self._completions if not self._has_adapters_only(route)]
            known = dict.fromkeys(model for route in asked for model in self._models_of(route))
            adapters = dict.fromkeys(name for route in self._completions for name in self._adapters_of(route))
            names = dict.fromkeys((*known, *adapters, *self._plans, *self._aliases, *self._find_announced()))
            listed = ", ".join([*names][:MAX_LISTED_MODELS])
            raise NotFound(f"there is no model {short!r}; there are: {listed or 'none'}")
        return found

    def find_again(self, meant: str | None, flow: str, name: str | None) -> FoundModel:
        """The model that a name meant when its request arrived; since then, its alias may have been edited or removed.

        Or this process may not know the alias yet.

        Args:
            meant: the `FoundModel.name` of that time.
            flow: its flow.
            name: the name that the client sent. It is looked up anew if the former model is gone.

        Raises:
            NotFound: as `find_model`.
        """
        return self.resolve(meant or "", flow) or self.find_model(name)

    def choose_model(
        self, flow: str | None, route: Route[Any, Any], request: TextCompletionRequest
    ) -> tuple[Route[Any, Any], TextCompletionRequest]:
        """The route to ask, and the request with the model's own name in place of an alias.

        A request for a model that no processor announces goes to `route` unchanged, since plain peers announce
        none.

        Args:
            flow: the flow that the client named; None = the model's flow.
            route: the service of that flow, or of the default flow.
            request: names a model.
        """
        found = self.resolve(request.model or "", flow or self.default_flow)
        if found is None or (flow is not None and found.route.flow != flow):
            return route, request
        return found.route, msgspec.structs.replace(
            request, model=found.model, adapter=found.adapter or request.adapter
        )

    def models(self) -> tuple[str, ...]:
        """The names that can be asked now: models with a live processor, then routes and aliases; each once."""
        return tuple(self.find_served())

    def adapters(self) -> tuple[FoundAdapter, ...]:
        """The LoRA adapters of live models that can be asked for by name alone, unless a model has the same name."""
        models = set(self.models())
        found: dict[str, FoundAdapter] = {}
        for route in self._completions:
            base = next(iter(self._models_of(route)), "")
            for name, root in self._adapters_of(route).items():
                if name not in models:
                    found.setdefault(name, FoundAdapter(name, base, root))
        for adapter in (each for unnamed in self._find_unnamed() for each in unnamed.adapters()):
            if adapter.name not in models:
                found.setdefault(adapter.name, adapter)
        return tuple(found.values())

    def find_served(self) -> dict[str, FoundModel]:
        """Each of `models`, as `find_model` finds it, in one pass over all routes."""
        found: dict[str, FoundModel] = {}
        for route in filter(self._is_served, self._completions):
            for model in self._models_of(route):
                if model not in found and not self._has_adapters_only(route):
                    found[model] = self._find(route, model)
        found |= self._find_announced()
        for name in self._plans:
            meant = self.resolve(name)
            if meant is not None and meant.processors:
                found.setdefault(name, meant)
        live = frozenset(found)
        for alias in self._aliases:
            meant = self.resolve(alias)
            if meant is not None and (
                meant.model in live or meant.route.plan in live or (meant.adapter and self._is_served(meant.route))
            ):
                found.setdefault(alias, meant)
        return found

    def served_models(self) -> tuple[ServedModel, ...]:
        """Each of `models`, with its flow and what all live processors of its queue announce of it."""
        return tuple(self._describe(name, found) for name, found in self.find_served().items())

    def _describe(self, name: str, found: FoundModel) -> ServedModel:
        alias_of = None if name == found.model else self._aliases.get(name)
        serving = [each for queue in self._list_queues(found.route) for each in self._serving(queue.request)]
        running, slots = sum(each.in_flight for each in serving), sum(each.capacity for each in serving)
        load = round(running / slots, 3) if running and slots else None
        return ServedModel(
            name,
            found.route.flow,
            tuple(sorted(found.features)),
            alias_of,
            found.loading,
            running,
            load,
            self.explain(found.route.plan) if found.route.plan else (),
        )

    def resolve(self, name: str, preferred: str = "") -> FoundModel | None:
        """As `find_model`; None = there is no such model."""
        if self._plans and (entry := self._find_entry(self._aliases.get(name, name), preferred)):
            return self._find_planned(entry)
        route = self._route_of(name, preferred)
        model = name if route else self._aliases.get(name, name)
        if route := route or self._route_of(model, preferred):
            return self._find(route, model)
        base, _, adapter = model.rpartition(":")
        route = self._route_of(base, preferred)
        base = base if route else self._aliases.get(base, base)
        if adapter and (route := route or self._route_of(base, preferred)):
            return self._find(route, base, adapter)
        found = self._find_adapter(model, preferred)
        # A name in the file never means an announced model, even while processors announce another one, as during an
        # edit.
        if found is None and self._configured.isdisjoint((model, *self._list_bases(model))):
            for unnamed in self._find_unnamed():
                found = unnamed.resolve(model, preferred)
        return found

    def _find_unnamed(self) -> "tuple[Catalogue, ...]":
        """The services that no file names, as a catalogue of their own; empty if there are none."""
        routes = () if self._announced is None else self._announced()
        if routes is not self._seen:
            rest = tuple(route for route in routes if (route.flow, route.spec.name) not in self._services)
            self._seen, self._unnamed = routes, (Catalogue(rest, self._serving, {}),) if rest else ()
        return self._unnamed

    def _find_announced(self) -> dict[str, FoundModel]:
        """The served models that no file names, by each name that is no other model's, for example an adapter's."""
        models = self._configured.union(*map(self._models_of, self._completions))
        names = models.union(self._aliases, self._plans, *map(self._adapters_of, self._completions))
        return {
            name: found
            for unnamed in self._find_unnamed()
            for name, found in unnamed.find_served().items()
            if name not in names and models.isdisjoint(self._list_bases(name))
        }

    def _list_bases(self, name: str) -> tuple[str, ...]:
        """The models that a name may mean by the part before its last colon."""
        base = name.rpartition(":")[0]
        return (base, self._aliases.get(base, base)) if base else ()

    def _find_entry(self, name: str, preferred: str) -> Route[Any, Any] | None:
        """What to ask for a route: the service of a flow that is bound to it, or its first queue."""
        plan = self._plans.get(name)
        bound = [route for route in self.routes if plan is not None and route.plan == name]
        bound.sort(key=lambda route: route.flow != preferred)
        return bound[0] if bound else plan.entry if plan is not None else None

    def _find_planned(self, route: Route[Any, Any]) -> FoundModel | None:
        """What a route with a plan can do; None = this one has no plan, only a queue."""
        if route.plan is None:
            return None
        found = [self._find(queue, None) for queue in self._list_queues(route)]
        live = [each for each in found if each.processors] or found
        return FoundModel(
            route,
            None,
            features=live[0].features,
            loading=all(each.loading for each in live),
            busy=all(each.busy for each in live),
            processors=sum(each.processors for each in live),
        )

    def _list_queues(self, route: Route[Any, Any]) -> tuple[Route[Any, Any], ...]:
        plan = self._plans.get(route.plan or "")
        return (route,) if plan is None else plan.queues

    def _find_adapter(self, adapter: str, preferred: str) -> FoundModel | None:
        having = [route for route in self._completions if adapter in self._adapters_of(route)]
        having.sort(key=lambda route: route.flow != preferred)
        return self._find(having[0], next(iter(self._models_of(having[0])), None), adapter) if having else None

    def _adapters_of(self, route: Route[Any, Any]) -> dict[str, str]:
        """The adapters that all live processors have, since any of them may get the request."""
        serving = self._serving(route.request)
        common = set.intersection(*(set(each.adapters) for each in serving)) if serving else set()
        return {name: root for name, root in serving[0].adapters.items() if name in common} if common else {}

    def _find(self, route: Route[Any, Any], model: str | None, adapter: str | None = None) -> FoundModel:
        serving = self._serving(route.request)
        if not serving:
            return FoundModel(route, model, adapter)
        # Any processor may get the request, so only what all of them can do counts.
        features = frozenset.intersection(*(frozenset(each.features) for each in serving))
        loading = all(each.loading for each in serving)
        return FoundModel(
            route,
            model,
            adapter,
            features,
            loading,
            busy=all(each.in_flight >= each.capacity for each in serving),
            processors=len(serving),
        )

    def _route_of(self, model: str, preferred: str) -> Route[Any, Any] | None:
        having = [route for route in self._completions if model and model in self._models_of(route)]
        # The client's own flow first, then those that can answer now.
        having.sort(key=lambda route: (route.flow != preferred, not self._is_served(route)))
        return having[0] if having else None

    def _models_of(self, route: Route[Any, Any]) -> tuple[str, ...]:
        """The models that processors announce; before the first announcement, the model of the configuration."""
        models = (
            model
            for each in self._serving(route.request)
            for model in each.models[:MAX_ANNOUNCED_MODELS]
            if len(model) <= MAX_MODEL_CHARACTERS
        )
        announced = tuple(dict.fromkeys(models))
        return announced or ((route.model,) if route.model else ())

    def _has_adapters_only(self, route: Route[Any, Any]) -> bool:
        return any(each.adapters_only for each in self._serving(route.request))

    def _is_served(self, route: Route[Any, Any]) -> bool:
        """A plain peer announces nothing, so assume that it is live."""
        return route.plain or bool(self._serving(route.request))
