"""Schedulers -> Prometheus: the current state of servers. It is read at each scrape, so it costs a pick nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from statistics import fmean

from msgspec import Struct
from prometheus_client.core import Metric

from tg_base.telemetry import MAX_LABEL_VALUES, make_printable
from tg_picker.core import ServerState, saturation
from tg_picker.pools import metrics
from tg_picker.status.pool_board import PoolBoard
from tg_schema.live import LivePool


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
        """The number of servers that answered, or about which nothing is known."""
        unreachable = self.board.pools.unreachable
        return sum(state.endpoint.address not in unreachable for state in self.states)

    @property
    def figures(self) -> LivePool:
        """The pool's row in the live view."""
        running, queued = (sum(map(attrgetter(name), self.states)) for name in ("requests", "queued"))
        return LivePool(len(self.servers), self.reachable, running, queued)


def find_pools(boards: Sequence[PoolBoard]) -> list[PoolState]:
    """All pools. Two boards may have pools of the same name, but a page may show a series only once."""
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
    yield metrics.READY.family(((pool.name,), float(pool.reachable)) for pool in pools)
    filled = [pool for pool in pools if pool.servers]
    for metric, read in (
        (metrics.MEAN_QUEUE, attrgetter("queued")),
        (metrics.MEAN_RUNNING, _running),
        (metrics.MEAN_CACHE, attrgetter("kv_usage")),
    ):
        yield metric.family([((pool.name,), fmean(map(read, pool.states))) for pool in filled])
    yield metrics.SATURATION.family(((pool.name,), saturation(pool.states, pool.board.clock())) for pool in filled)


def queue_gauges(boards: Iterable[PoolBoard]) -> Iterator[Metric]:
    """Waiting requests, and their bytes."""
    requests: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for board in boards:
        for queue in board.queues():
            requests[str(queue.priority), queue.pool] += queue.requests
            sizes[str(queue.priority), queue.pool] += queue.bytes
    yield metrics.QUEUE_SIZE.family(requests.items())
    yield metrics.QUEUE_BYTES.family(sizes.items())


def server_gauges(pools: Sequence[PoolState]) -> Iterator[Metric]:
    """The waiting and running requests of each server, and the adapters and prompts that it probably has."""
    servers = [((pool.name, name), state) for pool in pools for name, state in pool.servers]
    yield metrics.SERVER_QUEUE.family((key, state.queued) for key, state in servers)
    yield metrics.PLACED.family((key, state.requests) for key, state in servers)
    yield metrics.LOADED.family((key, len(state.adapters)) for key, state in servers)
    slots = [(key, state.adapters.slots) for key, state in servers]
    yield metrics.SLOTS.family((key, number) for key, number in slots if number is not None)
    yield metrics.EXACT.family((key, state.prefixes.source == "exact") for key, state in servers)
    yield metrics.PREFIXES.family([((), sum(len(state.prefixes) for _, state in servers))])
    yield _adapter_gauge(servers)


def _adapter_gauge(servers: Iterable[tuple[tuple[str, str], ServerState]]) -> Metric:
    found: Counter[tuple[str, str]] = Counter()
    for (pool, _), state in servers:
        found.update((pool, make_printable(adapter)) for adapter in state.adapters.used_at)
    # If no route names the adapters, clients do. So show only the most widespread ones.
    return metrics.HOLDERS.family(found.most_common(MAX_LABEL_VALUES))


def _running(state: ServerState) -> float:
    """Running requests as the server reports them; without a report, those that have begun by our own count."""
    report = state.report
    return float(state.running if report is None or report.running is None else report.running)
