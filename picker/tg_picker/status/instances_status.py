"""Boards -> page and JSON of `/instances`: the records that they show. They contain no prompt, key or user."""

from typing import Literal

from msgspec import Struct


class AdapterStatus(Struct, frozen=True):
    """An adapter of a server.

    Attributes:
        name: the name of the adapter.
        requests: requests for it that were placed on the server and have not ended.
        loaded: where the server has it, by its own report; "believed" = by our own placements.
        idle_seconds: seconds since its last request was placed or reported; 0 = the server reports that it is in use.
    """

    name: str
    requests: int
    loaded: Literal["gpu", "cpu", "believed"]
    idle_seconds: float


class ServerStatus(Struct, frozen=True):
    """A model server. None = not reported.

    Attributes:
        name, address: the server's name and address, as configured.
        state: an `unreachable` server is picked only if there is no other.
        problem: why its load cannot be read; "" = it can be, or it is not read.
        models: base models that it serves; empty = any.
        requests: requests placed there that have not ended, by our own count.
        unstarted: those of them without a first token.
        uncached_tokens: tokens of their prompts that it has to compute.
        queued, running: its requests, as it reports them.
        kv_usage: the share of its KV cache in use, as it reports it.
        report_age_seconds: seconds since that report.
        adapter_slots: adapters that fit.
        adapters: the most recently used adapters, at most MAX_ADAPTERS_SHOWN.
        adapters_loaded: how many adapters it probably has loaded.
        cached_blocks: blocks of prompts that it has cached.
        cache_source: `exact` = it reports its whole cache, `partial` = some of its reports were missed, `believed` = by
            our own placements.
        output_token_seconds: seconds from one token of an answer to the next, as learnt.
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
        saturation: how full it is, as admission counts it; 1 = full, None = it has no server.
        servers: its members.
    """

    name: str
    saturation: float | None
    servers: tuple[ServerStatus, ...]


class RouteStatus(Struct, frozen=True):
    """How a route meets an objective.

    Attributes:
        route: the name of the route.
        objective: the kind of latency.
        seconds: the latency that the objective allows.
        promised_share: the share of requests that must not exceed it.
        requests: requests that were answered since the process began.
        kept_share: the share of these that did not exceed it; None = there were no requests.
        recent_requests: requests of the last minute, including those that were refused or whose client waited too long;
            0 = nobody counts them.
        recent_share: the share of these that did not exceed it; None = there were no requests.
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
    """Requests of one priority that wait for a server.

    Attributes:
        pool: the pool in which they wait.
        priority: their priority.
        requests: their number.
        oldest_seconds: how long the first of them has waited.
        bytes: bytes of their bodies.
    """

    pool: str
    priority: int
    requests: int
    oldest_seconds: float
    bytes: int = 0


class DecisionStatus(Struct, frozen=True):
    """A decision, and why it was made.

    Attributes:
        seconds_ago: seconds since the decision.
        request: the request's id; "" = none.
        model: the model as the client named it.
        target: the model as the server names it.
        adapter: the same name if it is an adapter.
        pool, route: where the catalogue sent it; "" = nowhere, and no route.
        priority: the request's priority; higher goes first.
        prompt_tokens: estimated tokens of the prompt.
        server: the server that got it; "" = it was refused.
        reasons: the reasons, as sentences.
        outcome: how it ended; "running" = it has not ended yet.
        first_token_seconds, seconds: until the first token, and until the end; None = not yet, or never.
        output_tokens: tokens of the answer, as the server counted them.
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
