"""Resources -> the catalogue, or an error about a contradiction between them, with file, line and column."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar, cast

from tg_base.config import Keys, advise
from tg_picker.pools.catalogue import Catalogue, FailurePolicy, Objective, Pool, Slo, UseCase, Weighted
from tg_picker.pools.kinds import (
    InferenceModel,
    InferenceModelRewrite,
    InferenceObjective,
    InferencePool,
    LLMRoute,
    PoolRef,
    RewriteTarget,
    RouteObjective,
    Spec,
    TargetModel,
)
from tg_picker.pools.resource import Resource

_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_DURATION = re.compile("".join(f"(?:{_NUMBER}{unit})?" for unit in ("h", "m", "s", "ms")))
_PART = re.compile(r"([\d.]+)(ms|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def parse_duration(text: str) -> float | None:
    """Seconds, more than 0; None: not a duration. Units go from large to small; any may have a fraction: `1m30.5s`."""
    if not text.isascii() or not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)) or None


S = TypeVar("S", bound=Spec)

CRITICALITY = {"Critical": 1, "Standard": 0, "Default": 0, "Sheddable": -1}
"""The priority of an `InferenceModel`; requests below 0 may be shed."""


def build_catalogue(resources: Iterable[Resource[Spec]]) -> Catalogue:
    """Build the catalogue of some resources.

    Raises:
        BadRequest: a name is used twice, a pool is missing, all weights are 0, rewrites form a circle, or an objective
            is impossible.
    """
    return CatalogueBuilder(tuple(resources)).build()


def find_empty(resources: Iterable[Resource[Spec]], labelled: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """An advice for each pool without endpoints: its first server may not be there yet, or it selects wrong labels.

    Args:
        resources: the resources of a catalogue.
        labelled: the labels of each host that a source may provide, even if a name in DNS has no address yet.
    """
    there = dict.fromkeys(f"{key}: {value}" for labels in labelled for key, value in labels.items())
    advice = f"there are {', '.join(list(there)[:10])}" if there else "no endpoint has labels"
    for resource in _of(tuple(resources), InferencePool):
        pool = _make_pool(resource)
        if not any(pool.selects(labels) for labels in labelled):
            wanted = ", ".join(f"{key}: {value}" for key, value in pool.labels.items())
            sentence = f"no endpoint has the labels {wanted}; label one or select others: {advice}"
            yield resource.fault(sentence, "spec", "selector", "matchLabels").message


def check_protocols(resources: Iterable[Resource[Spec]]) -> None:
    """Refuse a pool whose servers speak only HTTP/2, for callers that speak HTTP/1.1.

    Raises:
        BadRequest: the `appProtocol` of a pool is `kubernetes.io/h2c`.
    """
    for resource in _of(tuple(resources), InferencePool):
        if resource.spec.app_protocol != "http":
            told = resource.spec.app_protocol
            sentence = f"{told}: the provider `pool` speaks HTTP/1.1; write http if the servers do too"
            raise resource.fault(f"{sentence}, or put an Envoy with tg-pick in front of them", "spec", "appProtocol")


class CatalogueBuilder:
    """Collects the content of all resources, and refuses contradictions between them."""

    def __init__(self, resources: tuple[Resource[Spec], ...]) -> None:
        self._resources = resources
        self._catalogue = Catalogue()
        self._named: dict[str, Resource[Spec]] = {}
        self._rules: dict[tuple[str, str], tuple[Resource[Spec], Keys]] = {}

    def build(self) -> Catalogue:
        """Read all resources, each after the resources to which it refers.

        Raises:
            BadRequest: see `build_catalogue`.
        """
        self._refuse_duplicates()
        for pool in _of(self._resources, InferencePool):
            made = _make_pool(pool)
            self._catalogue.pools[made.name] = made
        for route in _of(self._resources, LLMRoute):
            self._add_route(route)
        for model in _of(self._resources, InferenceModel):
            self._add_model(model)
        for rewrite in _of(self._resources, InferenceModelRewrite):
            self._add_rewrite(rewrite)
        for objective in _of(self._resources, InferenceObjective):
            pool_name = self._find_pool(objective, objective.spec.pool_ref, ("spec", "poolRef"))
            self._catalogue.objectives[objective.metadata.name] = Objective(pool_name, objective.spec.priority)
        self._refuse_circles()
        return self._catalogue

    def _refuse_duplicates(self) -> None:
        seen: dict[tuple[str, str, str], Resource[Spec]] = {}
        for resource in self._resources:
            # Requests refer to objectives without a namespace.
            space = "" if isinstance(resource.spec, InferenceObjective) else resource.metadata.namespace
            first = seen.setdefault((resource.kind, space, resource.metadata.name), resource)
            if first is not resource:
                raise resource.fault(
                    f"{resource.title} is there twice, first in {_place(first)}; rename or remove one",
                    "metadata",
                    "name",
                )

    def _add_route(self, route: Resource[LLMRoute]) -> None:
        spec, keys = route.spec, ("spec", "backendRefs")
        pools = [
            (self._find_pool(route, ref, (*keys, str(at)), ref.namespace), ref.weight)
            for at, ref in enumerate(spec.backend_refs)
        ]
        weighted = _weigh(route, pools, "the InferencePool {}", keys)
        slos, failure = _make_slos(route), _make_failure(route)
        case = UseCase(route.metadata.name, weighted, True, spec.adapter.priority, slos, failure)
        self._add_case(route, spec.adapter.name, case, ("spec", "adapter", "name"))

    def _add_model(self, model: Resource[InferenceModel]) -> None:
        spec = model.spec
        pool = self._find_pool(model, spec.pool_ref, ("spec", "poolRef"))
        case = UseCase(model.metadata.name, ((pool, 1),), False, CRITICALITY[spec.criticality])
        self._add_case(model, spec.model_name, case, ("spec", "modelName"))
        if spec.target_models:
            keys = ("spec", "targetModels")
            self._add_targets(model, pool, spec.model_name, _targets(model, spec.target_models, keys), keys)

    def _add_case(self, resource: Resource[Spec], model: str, case: UseCase, keys: Keys) -> None:
        first = self._named.setdefault(model, resource)
        if first is not resource:
            sentence = f'the model "{model}" has a route already, {first.title} in {_place(first)}; remove one'
            raise resource.fault(sentence, *keys)
        self._catalogue.cases[model] = case

    def _add_rewrite(self, rewrite: Resource[InferenceModelRewrite]) -> None:
        pool = self._find_pool(rewrite, rewrite.spec.pool_ref, ("spec", "poolRef"))
        for at, rule in enumerate(rewrite.spec.rules):
            keys = ("spec", "rules", str(at))
            targets = _targets(rewrite, rule.targets, (*keys, "targets"))
            if not rule.matches:
                if pool in self._catalogue.defaults:
                    sentence = f"a second rule without matches for the pool {pool}; name models, or remove one"
                    raise rewrite.fault(sentence, *keys)
                self._catalogue.defaults[pool] = targets
            for number, match in enumerate(rule.matches):
                where = (*keys, "matches", str(number), "model", "value")
                self._add_targets(rewrite, pool, match.model.value, targets, where)

    def _add_targets(self, resource: Resource[Spec], pool: str, model: str, targets: Weighted, keys: Keys) -> None:
        first, _ = self._rules.setdefault((pool, model), (resource, keys))
        if (pool, model) in self._catalogue.rewrites:
            sentence = f'the model "{model}" is rewritten already, by {first.title} in {_place(first)}; remove one'
            raise resource.fault(sentence, *keys)
        self._catalogue.rewrites[pool, model] = targets

    def _find_pool(self, resource: Resource[Spec], ref: PoolRef, keys: Keys, namespace: str = "") -> str:
        name = _pool_name(namespace or resource.metadata.namespace, ref.name)
        if name not in self._catalogue.pools:
            known = list(self._catalogue.pools)
            advice = advise(name, known) if known else "add an InferencePool"
            raise resource.fault(f"there is no InferencePool {name}; {advice}", *keys, "name")
        return name

    def _refuse_circles(self) -> None:
        graph = {
            (pool, model): {(pool, target) for target, _ in targets if target != model}
            for (pool, model), targets in self._catalogue.rewrites.items()
        }
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = cast("list[tuple[str, str]]", error.args[1])
            resource, keys = self._rules[circle[0]]
            names = " -> ".join(model for _, model in reversed(circle))
            raise resource.fault(f"rewrites form a circle: {names}; remove one", *keys) from None


def _of(resources: tuple[Resource[Spec], ...], kind: type[S]) -> list[Resource[S]]:
    return [cast("Resource[S]", resource) for resource in resources if isinstance(resource.spec, kind)]


def _place(resource: Resource[Spec]) -> str:
    return resource.fault("").message.removesuffix(": ")


def _pool_name(namespace: str, name: str) -> str:
    return name if namespace == "default" else f"{namespace}/{name}"


def _make_pool(resource: Resource[InferencePool]) -> Pool:
    spec = resource.spec
    ports = tuple(port.number for port in spec.target_ports)
    name = _pool_name(resource.metadata.namespace, resource.metadata.name)
    return Pool(name, spec.selector.match_labels, ports)


def _make_slos(route: Resource[LLMRoute]) -> tuple[Slo, ...]:
    made: list[Slo] = []
    for at, objective in enumerate(route.spec.adapter.objectives):
        if any(objective.type == each.kind for each in made):
            # Refuse two quantiles of one latency: each needs its own window, and to ignore one would mislead.
            sentence = f"{objective.type} has an objective already; keep the one that matters most"
            raise route.fault(sentence, "spec", "adapter", "objectives", str(at), "type")
        made.append(_make_promise(route, at, objective))
    return tuple(made)


def _make_promise(route: Resource[LLMRoute], at: int, objective: RouteObjective) -> Slo:
    keys = ("spec", "adapter", "objectives", str(at), "latency")
    seconds = _read_duration(route, objective.latency.value, *keys, "value")
    share = objective.latency.quantile.numerator / objective.latency.quantile.denominator
    if share >= 1:
        sentence = f"numerator must be below the denominator, {objective.latency.quantile.denominator}"
        raise route.fault(f"{sentence}; no server can guarantee it for all requests", *keys, "quantile", "numerator")
    return Slo(objective.type, seconds, share)


def _make_failure(route: Resource[LLMRoute]) -> FailurePolicy:
    policy, keys = route.spec.adapter.failure_policy, ("spec", "adapter", "failurePolicy")
    delay, wait = policy.hedging_delay, policy.max_wait
    return FailurePolicy(
        policy.max_attempts,
        None if delay is None else _read_duration(route, delay, *keys, "hedgingDelay"),
        None if wait is None else _read_duration(route, wait, *keys, "maxWait"),
    )


def _read_duration(route: Resource[LLMRoute], text: str, *keys: str) -> float:
    seconds = parse_duration(text)
    if seconds is None:
        sentence = f'{keys[-1]} must be a duration above 0 such as 2s, 500ms or 1m30s, not "{text}"'
        raise route.fault(sentence, *keys)
    return seconds


def _targets(resource: Resource[Spec], targets: Iterable[RewriteTarget | TargetModel], keys: Keys) -> Weighted:
    rows = ((each.model_rewrite if isinstance(each, RewriteTarget) else each.name, each.weight) for each in targets)
    return _weigh(resource, rows, 'the target "{}"', keys)


def _weigh(resource: Resource[Spec], rows: Iterable[tuple[str, int]], title: str, keys: Keys) -> Weighted:
    """The entries of a list from which one is chosen by weight; `title` is the errors' word for an entry."""
    found: dict[str, int] = {}
    for at, (name, weight) in enumerate(rows):
        if name in found:
            raise resource.fault(f"{title.format(name)} is repeated; add the weights", *keys, str(at))
        found[name] = weight
    if not found:
        raise resource.fault(f"{keys[-1]} is empty; add one", *keys)
    if not any(found.values()):
        raise resource.fault("all weights are 0, so nothing can be chosen; make one larger", *keys)
    return tuple(found.items())
