"""Schedulers -> Prometheus: what is known of servers now. It is read when somebody asks, so a pick pays nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from msgspec import Struct
from prometheus_client.core import Metric

from tg_picker.core import ServerState, saturation
from tg_picker.status.bounded_label import MAX_LABEL_VALUES, make_printable
from tg_picker.status.metric_families import NEW, make_gauge
from tg_picker.status.pool_board import PoolBoard


class PoolState(Struct, frozen=True):
    """A pool: its label, its board, and its servers by name."""

    name: str
    board: PoolBoard
    servers: tuple[tuple[str, ServerState], ...]

    @property
    def states(self) -> list[ServerState]:
        """The states of its servers."""
        return [state for _, state in self.servers]

    @property
    def reachable(self) -> int:
        """Servers that answered, or of which nothing is known."""
        unreachable = self.board.pools.unreachable
        return sum(state.endpoint.address not in unreachable for state in self.states)


def find_pools(boards: Sequence[PoolBoard]) -> list[PoolState]:
    """All pools. Two boards may have pools of one name, but a page may have a series only once."""
    found: dict[str, PoolState] = {}
    for board in boards:
        board.scheduler.expire(board.clock())
        for pool, members in board.pools.view.members.items():
            name = pool if pool not in found else f"{board.name}/{pool}"
            servers = tuple((each.name or each.address, board.scheduler.server(each)) for each in members)
            found[name] = PoolState(name, board, servers)
    return list(found.values())


def pool_gauges(pools: Sequence[PoolState]) -> Iterator[Metric]:
    """How many servers each pool has, and how busy they are."""
    label = ("name",)
    ready = [((pool.name,), float(pool.reachable)) for pool in pools]
    yield make_gauge(f"{NEW}ready_endpoints", "Servers that can be reached", label, ready)
    filled = [pool for pool in pools if pool.servers]
    for suffix, text, read in (
        ("average_queue_size", "Requests that wait at a server, on average", _queued),
        ("average_running_requests", "Requests that run at a server, on average", _running),
        ("average_kv_cache_utilization", "Share of the KV cache in use, on average", _kv_usage),
    ):
        averages = [((pool.name,), fmean(map(read, pool.states))) for pool in filled]
        yield make_gauge(NEW + suffix, text, label, averages)
    full = [((pool.name,), saturation(pool.states, pool.board.clock())) for pool in filled]
    name = f"{NEW}flow_control_pool_saturation"
    yield make_gauge(name, "How full a pool is; 1 = full", ("inference_pool",), full)


def queue_gauges(boards: Iterable[PoolBoard]) -> Iterator[Metric]:
    """Requests that wait for a place, and their bytes."""
    requests: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for board in boards:
        for queue in board.queues():
            requests[str(queue.priority), queue.pool] += queue.requests
            sizes[str(queue.priority), queue.pool] += queue.bytes
    for name, text, counted in (
        ("flow_control_queue_size", "Requests that wait for a place", requests),
        ("flow_control_queue_bytes", "Bytes of requests that wait for a place", sizes),
    ):
        rows = [(key, float(number)) for key, number in counted.items()]
        yield make_gauge(NEW + name, text, ("priority", "inference_pool"), rows)


def server_gauges(pools: Sequence[PoolState]) -> Iterator[Metric]:
    """The waiting and running requests of each server, and its probable adapters and prompts."""
    servers = [((pool.name, name), state) for pool in pools for name, state in pool.servers]
    queued = [(key, _queued(state)) for key, state in servers]
    text = "Requests that wait at a server"
    yield make_gauge(f"{NEW}per_endpoint_queue_size", text, ("name", "model_server_endpoint"), queued)
    labels = ("pool", "server")
    placed = [(key, float(state.requests)) for key, state in servers]
    yield make_gauge("tg_pool_requests", "Placed at a server and not ended, by our own count", labels, placed)
    loaded = [(key, float(len(state.adapters))) for key, state in servers]
    yield make_gauge("tg_pool_adapters_loaded", "Adapters that a server probably has loaded", labels, loaded)
    slots = [(key, float(state.adapters.slots)) for key, state in servers if state.adapters.slots is not None]
    yield make_gauge("tg_pool_adapter_slots", "Adapters that a server takes, as it tells", labels, slots)
    exact = [(key, float(state.prefixes.source == "exact")) for key, state in servers]
    yield make_gauge("tg_pool_prefixes_exact", "Whether a server tells all that it has cached", labels, exact)
    blocks = [((), float(sum(len(state.prefixes) for _, state in servers)))]
    yield make_gauge(f"{NEW}prefix_indexer_size", "Blocks of prompts that are remembered", (), blocks)
    yield _adapter_gauge(servers)


def _adapter_gauge(servers: Iterable[tuple[tuple[str, str], ServerState]]) -> Metric:
    found: Counter[tuple[str, str]] = Counter()
    for (pool, _), state in servers:
        found.update((pool, make_printable(adapter)) for adapter in state.adapters.used_at)
    # Names come from clients where no route names the adapters. Only the most widespread ones are shown.
    rows = [(key, float(number)) for key, number in found.most_common(MAX_LABEL_VALUES)]
    text = "Servers that probably have an adapter loaded"
    return make_gauge("tg_pool_adapter_servers", text, ("pool", "adapter"), rows)


def _queued(state: ServerState) -> float:
    return float(state.queued)


def _running(state: ServerState) -> float:
    """Running requests as the server reports them; without a report, those that have begun by our own count."""
    report = state.report
    return float(state.running if report is None or report.running is None else report.running)


def _kv_usage(state: ServerState) -> float:
    return state.kv_usage
