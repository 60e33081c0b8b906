"""Pickers of a process -> its pages: all boards, and what they counted together."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from tg_picker.status.metric_families import (
    EXTENSION,
    NEW,
    OBJECTIVE,
    make_counter,
    make_counters,
    make_gauge,
    make_gauges,
    make_histograms,
)
from tg_picker.status.picker_totals import PickerTotals
from tg_picker.status.pool_board import PoolBoard, read_recent
from tg_picker.status.pool_gauges import find_pools, pool_gauges, queue_gauges, server_gauges
from tg_picker.status.request_series import HISTOGRAMS

_BUILD: Final = f"tokengrid-{version('tokengrid-base')}"
_MODEL: Final = ("model_name", "target_model_name")


class BoardCollector(Collector):
    """Makes the families of all boards.

    Args:
        boards: those that are shown.
        totals: what they counted.
    """

    def __init__(self, boards: Callable[[], Sequence[PoolBoard]], totals: PickerTotals) -> None:
        self._boards = boards
        self._totals = totals

    @override
    def collect(self) -> Iterable[Metric]:
        self._totals.settle()
        yield from self._requests()
        yield from self._distributions()
        yield from self._waits()
        yield from self._picks()
        yield from self._routes()
        boards = self._boards()
        # The commit that an installed package was made of is not known.
        builds = [(("", _BUILD), 1.0)] if boards else []
        text = "The picker's build"
        yield from make_gauges("info", f"{EXTENSION}_info", text, ("commit", "build_ref"), builds)
        pools = find_pools(boards)
        yield from pool_gauges(pools)
        yield from server_gauges(pools)
        yield from queue_gauges(boards)

    def _requests(self) -> Iterator[Metric]:
        series = self._totals.series.items()
        came = [((*key, str(level)), n) for key, each in series for level, n in each.requests.items()]
        yield from make_counters("request", OBJECTIVE, "Requests that came", (*_MODEL, "priority"), came)
        errors = [((*key, code), n) for key, each in series for code, n in each.errors.items()]
        yield from make_counters("request_error", OBJECTIVE, "Requests that failed", (*_MODEL, "error_code"), errors)
        missed = [((*key, kind), n) for key, each in series for kind, n in each.violations.items()]
        text = "Answers that missed an objective"
        yield from make_counters("request_slo_violation", OBJECTIVE, text, (*_MODEL, "type"), missed)
        renamed = [(key, sum(each.requests.values())) for key, each in series if key[1] and key[0] != key[1]]
        text = "Requests whose model was renamed"
        yield from make_counters("model_rewrite_decisions", EXTENSION, text, ("model_name", "target_model"), renamed)
        running: Counter[str] = Counter()
        for (name, _), each in series:
            running[name] += each.running
        rows = [((name,), float(number)) for name, number in running.items()]
        text = "Requests that were placed and have not ended"
        yield from make_gauges("request_running", f"{OBJECTIVE}_running_requests", text, _MODEL[:1], rows)

    def _distributions(self) -> Iterator[Metric]:
        totals = self._totals
        for suffix, (text, _) in HISTOGRAMS.items():
            cells = [(key, found) for key, each in totals.series.items() if (found := each.cells.get(suffix))]
            yield from make_histograms(suffix, OBJECTIVE, text, _MODEL, cells)
        for suffix, old, text, counted in (
            ("request_sizes", OBJECTIVE, "Bytes of a request's body", totals.request_bytes),
            ("scheduler_e2e_duration_seconds", EXTENSION, "Time of a pick", totals.pick_seconds),
            ("prefix_indexer_hit_ratio", EXTENSION, "Share of a prompt that a server had", totals.hit_ratios),
            ("prefix_indexer_hit_bytes", EXTENSION, "Bytes of it, at 4 a token", totals.hit_bytes),
        ):
            yield from make_histograms(suffix, old, text, (), [((), counted)])

    def _waits(self) -> Iterator[Metric]:
        queued = list(self._totals.queued.items())
        labels, text = ("priority", "outcome", "inference_pool"), "Time from the request to the decision about it"
        yield from make_histograms("flow_control_request_queue_duration_seconds", EXTENSION, text, labels, queued)
        ended: Counter[tuple[str, str]] = Counter()
        for (priority, outcome, _), cells in queued:
            ended[outcome, priority] += sum(cells.counts)
        text = "Requests that were decided about"
        yield make_counter(f"{NEW}_flow_control_requests", text, ("outcome", "priority"), list(ended.items()))

    def _picks(self) -> Iterator[Metric]:
        rows = list(self._totals.picks.items())
        for name, server in ((NEW, "endpoint_name"), (EXTENSION, "pod_name")):
            # Without the model: servers times models would be too many, and clients name the models.
            labels = ("status", server, "port")
            yield make_counter(f"{name}_scheduler_attempts", "Attempts to pick a server", labels, rows)
        adapters = [
            ((*key, result), number)
            for key, both in self._totals.adapters.items()
            for result, number in zip(("loaded", "load"), both, strict=True)
        ]
        text = "Picks for an adapter, by whether its server had it loaded"
        yield make_counter("tg_pool_adapter_picks", text, ("pool", "adapter", "result"), adapters)

    def _routes(self) -> Iterator[Metric]:
        routes = self._totals.routes.items()
        labels = ("route", "objective")
        cases = (case for board in self._boards() for case in board.pools.view.catalogue.cases.values())
        names = dict.fromkeys((*(case.route for case in cases), *self._totals.answers))
        answered = [((name, ""), self._totals.answers[name]) for name in names]
        answered += [(key, count.requests) for key, count in routes]
        text = "Answers of a route; with an objective, those that could be judged by it"
        yield make_counter("tg_route_requests", text, labels, answered)
        kept = [(key, count.kept) for key, count in routes]
        yield make_counter("tg_route_requests_within_objective", "Those of them that kept it", labels, kept)
        shares = [(key, count.slo.share) for key, count in routes]
        recent = [(key, attained.share) for key, attained in read_recent(self._boards()).items()]
        yield make_gauge("tg_route_attainment_ratio", "The share that kept it in the last minute", labels, recent)
        yield make_gauge("tg_route_objective_share", "The share that is promised to keep it", labels, shares)


class PoolBoards:
    """The boards that are shown. Its metrics appear with the first one: a process without pools has none.

    Args:
        registry: that exports the metrics.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._shown: list[PoolBoard] = []
        self._collector: BoardCollector | None = None
        self._totals = PickerTotals(lambda name: any(board.names(name) for board in self._shown))

    @property
    def totals(self) -> PickerTotals:
        """The counts until now."""
        self._totals.settle()
        return self._totals

    @property
    def shown(self) -> tuple[PoolBoard, ...]:
        """The boards that are shown now, the oldest first."""
        return tuple(self._shown)

    @contextmanager
    def show(self, board: PoolBoard) -> Iterator[None]:
        """Show a board until the block is left."""
        if self._collector is None:
            self._collector = BoardCollector(lambda: self._shown, self._totals)
            self._registry.register(self._collector)
        self._shown.append(board)
        try:
            yield
        finally:
            # Settle now, while the operator's names are still known.
            self._totals.settle()
            self._shown.remove(board)


BOARDS: Final = PoolBoards()
"""The boards of this process."""
