"""Servers and requests by a few words, for tables of decisions."""

from random import Random

from tg_picker.core import (
    AdapterReport,
    Choice,
    Endpoint,
    Fingerprint,
    InstanceRequest,
    LoadReport,
    Policy,
    Refusal,
    Residency,
    SchedulingContext,
    ServerState,
)
from tg_picker.core.interface import NO_FINGERPRINT


def endpoint(name: str) -> Endpoint:
    """A server called so."""
    return Endpoint(f"{name}:8000", name)


def request(
    adapter: str | None = None, *, tokens: int = 100, blocks: tuple[int, ...] = (), priority: int = 0
) -> InstanceRequest:
    """A request with these blocks at its beginning."""
    prefix = Fingerprint(blocks) if blocks else NO_FINGERPRINT
    return InstanceRequest("base", adapter, tokens, prefix, priority)


def told(
    queued: int | None = None,
    kv: float | None = None,
    *,
    slots: int | None = None,
    active: str = "",
    waiting: str = "",
    resident: dict[str, Residency] | None = None,
    running: int | None = None,
) -> LoadReport:
    """A report. Adapters are single letters; without slots it tells nothing of them."""
    adapters = None if slots is None else AdapterReport(slots, frozenset(active), frozenset(waiting), resident)
    return LoadReport(0.0, queued=queued, running=running, kv_usage=kv, adapters=adapters)


def server(name: str, report: LoadReport | None = None, *placed: InstanceRequest) -> ServerState:
    """A server that told this, and was given these requests of which none has begun to answer."""
    state = ServerState(endpoint(name))
    if report is not None:
        state.observe(report)
    for each in placed:
        state.place(each, each.prompt_tokens, 100, 0.0)
    return state


def choose(policy: Policy, asked: InstanceRequest, *servers: ServerState, seed: int = 0) -> str:
    """The name of the server that the policy chooses, or why it refuses."""
    made = policy.choose(SchedulingContext(asked, servers, 100, 0.0, Random(seed)))
    return made.reason if isinstance(made, Refusal) else made.server.endpoint.name


def choices(policy: Policy, asked: InstanceRequest, *servers: ServerState) -> str:
    """The names of all servers that the policy chooses with one of 100 seeds, in order."""
    return "".join(sorted({choose(policy, asked, *servers, seed=seed) for seed in range(100)}))


def choice(policy: Policy, asked: InstanceRequest, *servers: ServerState) -> Choice | Refusal:
    """The decision with its reasons."""
    return policy.choose(SchedulingContext(asked, servers, 100, 0.0, Random(0)))
