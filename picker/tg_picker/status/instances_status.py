"""Boards -> page and JSON of `/instances`: the records that it shows. No prompt, no key, no user."""

from typing import Literal

from msgspec import Struct


class AdapterStatus(Struct, frozen=True):
    """An adapter of a server.

    Attributes:
        name: the name of the adapter.
        requests: placed there for it and not ended.
        loaded: where it is, as the server tells; "believed" = by our own placements.
        idle_seconds: since its last request was placed, or told of; 0 = the server tells that it is in use.
    """

    name: str
    requests: int
    loaded: Literal["gpu", "cpu", "believed"]
    idle_seconds: float


class ServerStatus(Struct, frozen=True):
    """A model server. None = not reported.

    Attributes:
        name, address: as configured.
        state: `unreachable` is picked only if there is no other.
        problem: why its load cannot be read; "" = it can, or nobody reads it.
        models: base models; empty = any.
        requests: placed there and not ended, by our own count.
        unstarted: those of them without a first token.
        uncached_tokens: tokens of their prompts that it has to compute.
        queued, running: as it tells.
        kv_usage: share of its KV cache in use, as it tells.
        report_age_seconds: since it told that.
        adapter_slots: adapters that it takes.
        adapters: the last used ones, at most MAX_ADAPTERS_SHOWN.
        adapters_loaded: how many it probably has loaded.
        cached_blocks: blocks of prompts that it has cached.
        cache_source: `exact` = it tells all that it has, `partial` = some of what it told was missed, `believed` = by
            our own placements.
        output_token_seconds: from a token of an answer to the next, as learnt.
    """

    name: str
    address: str
    state: Literal["ready", "stale", "unreachable"]
    problem: str
    models: tuple[str, ...]
    requests: int
    unstarted: int
    uncached_tokens: int
    queued: int | None
    running: int | None
    kv_usage: float | None
    report_age_seconds: float | None
    adapter_slots: int | None
    adapters: tuple[AdapterStatus, ...]
    adapters_loaded: int
    cached_blocks: int
    cache_source: Literal["believed", "partial", "exact"]
    output_token_seconds: float


class PoolStatus(Struct, frozen=True):
    """A pool of servers.

    Attributes:
        name: the name of the pool.
        saturation: 1 = full, as admission counts it; None = it has no server.
        servers: its members.
    """

    name: str
    saturation: float | None
    servers: tuple[ServerStatus, ...]


class RouteStatus(Struct, frozen=True):
    """How a route meets an objective.

    Attributes:
        route: its name.
        objective: which latency.
        seconds: that it may take.
        promised_share: the share of requests that must take no longer.
        requests: requests answered since the process began.
        kept_share: the share of these that took no longer; None = there were none.
        recent_requests: of the last minute, those that were refused or left too late among them; 0 = nobody watches.
        recent_share: the share of these that took no longer; None = there were none.
    """

    route: str
    objective: str
    seconds: float
    promised_share: float
    requests: int
    kept_share: float | None
    recent_requests: int = 0
    recent_share: float | None = None


class QueueStatus(Struct, frozen=True):
    """Requests that wait for a place, of one priority.

    Attributes:
        pool: where they want to go.
        priority: the priority of all of them.
        requests: how many.
        oldest_seconds: how long the first of them has waited.
        bytes: bytes of their bodies.
    """

    pool: str
    priority: int
    requests: int
    oldest_seconds: float
    bytes: int = 0


class DecisionStatus(Struct, frozen=True):
    """Why a request went where it did.

    Attributes:
        seconds_ago: when.
        request: its id; "" = none.
        model: as the client named it.
        target: as the server was asked.
        adapter: the same, if it is one.
        pool, route: where the catalogue sent it; "" = nowhere, none.
        priority: higher goes first.
        prompt_tokens: estimated.
        server: where it went; "" = it was refused.
        reasons: sentences.
        outcome: how it ended; "running" = it did not yet.
        first_token_seconds, seconds: until the first token, until the end; None = not yet, or never.
        output_tokens: as the server counted.
    """

    seconds_ago: float
    request: str
    model: str
    target: str
    adapter: str | None
    pool: str
    route: str
    priority: int
    prompt_tokens: int
    server: str
    reasons: tuple[str, ...]
    outcome: str
    first_token_seconds: float | None
    seconds: float | None
    output_tokens: int | None


class PickerStatus(Struct, frozen=True):
    """The state of one picker and its last decisions, the newest first."""

    name: str
    policy: str
    pools: tuple[PoolStatus, ...]
    queues: tuple[QueueStatus, ...]
    decisions: tuple[DecisionStatus, ...]


class InstancesStatus(Struct, frozen=True):
    """All pickers of a process."""

    pickers: tuple[PickerStatus, ...]
    routes: tuple[RouteStatus, ...]
