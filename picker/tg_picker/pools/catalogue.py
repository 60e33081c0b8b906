"""Resources, checked together -> the pool, adapter, priority and objectives to which each model name leads."""

from collections.abc import Callable, Collection, Mapping
from random import Random
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta, Struct

Weighted = tuple[tuple[str, int], ...]
"""Names with weights, whose sum is positive."""


def choose(weighted: Weighted, draw: Random) -> str:
    """Choose a name by weight; a name with weight 0 is never chosen. A single name takes no random number."""
    if len(weighted) == 1:
        return weighted[0][0]
    names, weights = zip(*weighted, strict=True)
    return str(draw.choices(names, weights)[0])


SloKind = Literal["OutputTokenLatency", "TimeToFirstToken"]


class Slo(Struct, frozen=True):
    """A latency objective of a route: `share` of its requests take at most `seconds`.

    Attributes:
        kind: the kind of latency; `OutputTokenLatency` is the time between two tokens.
        seconds: more than 0.
        share: between 0 and 1, both excluded; 0.99 = the 99th percentile.
    """

    kind: SloKind
    seconds: float
    share: float


class FailurePolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """How a route's request is retried if no answer comes in time. None = as for all requests of the pool.

    Attributes:
        max_attempts: most servers that are tried until one begins its answer.
        hedging_delay: seconds without a first token after which a second server is tried at the same time.
        max_wait: most seconds that a request waits for a server; the pool's own limit applies too.
    """

    max_attempts: Annotated[int, Meta(ge=1)] | None = None
    hedging_delay: Annotated[float, Meta(gt=0, le=3600)] | None = None
    max_wait: Annotated[float, Meta(gt=0, le=86_400)] | None = None


DEFAULT_FAILURE_POLICY = FailurePolicy()


class Pool(Struct, frozen=True):
    """Model servers that share a base model.

    Attributes:
        name: "NAME", or "NAMESPACE/NAME" outside the namespace "default".
        labels: a host belongs to the pool if it has all of them.
        ports: the ports of each host whose source does not name any.
    """

    name: str
    labels: dict[str, str]
    ports: tuple[int, ...]

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a host with these labels belongs to the pool."""
        return self.labels.items() <= labels.items()


class UseCase(Struct, frozen=True):
    """A route's rules for its model.

    Attributes:
        route: the name of the route, for logs and metrics.
        pools: the pools that its requests go to.
        is_adapter: whether the model is an adapter, according to the route.
        priority: higher goes first; requests below 0 may be shed.
        slos: its latency objectives.
        failure: how its failed requests are retried.
    """

    route: str
    pools: Weighted
    is_adapter: bool = False
    priority: int = 0
    slos: tuple[Slo, ...] = ()
    failure: FailurePolicy = DEFAULT_FAILURE_POLICY


class Objective(Struct, frozen=True):
    """A priority in one pool, to which requests refer by the name of an `InferenceObjective`."""

    pool: str
    priority: int


class Destination(Struct, frozen=True):
    """The pool and model that a request goes to.

    Attributes:
        pool: the name of the pool.
        model: the model that a server is asked for.
        adapter: the same name if it is an adapter; None = a base model, or not known.
        priority: higher goes first; requests below 0 may be shed.
        slos: the latency objectives of the route.
        route: the name of the route; "" = no route is for this model.
        failure: how the route retries failed requests.
    """

    pool: str
    model: str
    adapter: str | None = None
    priority: int = 0
    slos: tuple[Slo, ...] = ()
    route: str = ""
    failure: FailurePolicy = DEFAULT_FAILURE_POLICY


HasAdapter = Callable[[str, str], bool]
"""Whether a server of a pool has reported an adapter: called with the pool's name and the adapter's."""

_NO_CASE = UseCase("", ())


class Catalogue(Struct, frozen=True):
    """All pools, and the routes and names that lead to them. Immutable and validated; `build_catalogue` creates it.

    Attributes:
        pools: by name.
        cases: the routes' rules, by the model name that clients use.
        rewrites: other names for a pool's models, by pool and model. They may be chained, but not in a circle.
        defaults: by pool, the rewrites for models that nothing else in the pool names.
        objectives: the objectives by name.
    """

    pools: dict[str, Pool] = {}
    cases: dict[str, UseCase] = {}
    rewrites: dict[tuple[str, str], Weighted] = {}
    defaults: dict[str, Weighted] = {}
    objectives: dict[str, Objective] = {}

    def resolve(
        self,
        model: str,
        draw: Random,
        *,
        pool: str | None = None,
        objective: str = "",
        served: Mapping[str, Collection[str]] = MappingProxyType({}),
        has: HasAdapter = lambda _pool, _adapter: False,
    ) -> Destination | None:
        """Where a request for a model goes; None: nothing is known about the model.

        Args:
            model: as the client names it.
            draw: chooses by weight.
            pool: the pool, if it has been chosen; None = the catalogue chooses.
            objective: the `InferenceObjective` that the request names. One that is unknown, or of another pool, has no
                effect.
            served: the base models of each pool, as far as its servers report them.
            has: whether servers have reported an adapter. Such an adapter needs no route.
        """
        case = self.cases.get(model)
        if pool is None:
            pools = self._find_pools(model, case, served, has)
            if not pools:
                return None
            pool = choose(pools, draw)
        target = self._rewrite(pool, model, served.get(pool, ()), draw)
        use_case = case or self.cases.get(target) or _NO_CASE
        named = self.objectives.get(objective)
        return Destination(
            pool,
            target,
            self._find_adapter(pool, target, use_case, served.get(pool), has),
            named.priority if named is not None and named.pool == pool else use_case.priority,
            use_case.slos,
            use_case.route,
            use_case.failure,
        )

    @property
    def hedged_route(self) -> str:
        """The name of a route whose requests may go to a second server; "" = there is none."""
        return next((case.route for case in self.cases.values() if case.failure.hedging_delay is not None), "")

    @property
    def adapters(self) -> tuple[str, ...]:
        """The adapters that routes name."""
        return tuple([model for model, case in self.cases.items() if case.is_adapter])

    @property
    def models(self) -> tuple[str, ...]:
        """The names that clients may use, in addition to the names of the pools' base models."""
        return tuple(dict.fromkeys((*self.cases, *(model for _, model in self.rewrites))))

    def find_rewriting(self, model: str) -> list[str]:
        """The pools that rewrite this model name."""
        return [pool for pool in self.pools if (pool, model) in self.rewrites]

    def _find_pools(
        self, model: str, case: UseCase | None, served: Mapping[str, Collection[str]], has: HasAdapter
    ) -> Weighted:
        if case is not None:
            return case.pools
        serving = [pool for pool in self.pools if model in served.get(pool, ())]
        found = self.find_rewriting(model) or serving or list(self.defaults)
        if not (found or self.cases or self.rewrites):
            # No configuration names models. So the servers decide, and answer 404 for unknown ones themselves.
            found = [pool for pool in self.pools if not served.get(pool) or has(pool, model)]
        return tuple([(pool, 1) for pool in found])

    def _rewrite(self, pool: str, model: str, served: Collection[str], draw: Random) -> str:
        named = model in self.cases or (pool, model) in self.rewrites or model in served
        if not named and pool in self.defaults:
            model = choose(self.defaults[pool], draw)
        while (targets := self.rewrites.get((pool, model))) is not None:
            target = choose(targets, draw)
            if target == model:
                return model
            model = target
        return model

    def _find_adapter(
        self, pool: str, target: str, use_case: UseCase, served: Collection[str] | None, has: HasAdapter
    ) -> str | None:
        """Reported base models are certain. Without them, the route or the reported adapters decide."""
        if served:
            return None if target in served else target
        case = self.cases.get(target, use_case)
        return target if case.is_adapter or has(pool, target) else None
