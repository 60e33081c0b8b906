"""Pickers of a process -> its pages: all boards, and what they counted together."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from itertools import chain
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from tg_picker.pools import metrics
from tg_picker.status.metric_families import add_older
from tg_picker.status.picker_totals import PickerTotals
from tg_picker.status.pool_board import PoolBoard, read_recent
from tg_picker.status.pool_gauges import find_pools, pool_gauges, queue_gauges, server_gauges

_BUILD: Final = f"tokengrid-{version('tokengrid-base')}"


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
        yield from add_older(chain(self._totals.registry.collect(), self._routes(), self._boards_now()))

    def _boards_now(self) -> Iterator[Metric]:
        boards = self._boards()
        # The commit that an installed package was made of is not known.
        builds = [(("", _BUILD), 1.0)] if boards else []
        yield metrics.INFO.family(builds)
        pools = find_pools(boards)
        yield from pool_gauges(pools)
        yield from server_gauges(pools)
        yield from queue_gauges(boards)

    def _routes(self) -> Iterator[Metric]:
        routes = self._totals.routes.items()
        cases = (case for board in self._boards() for case in board.pools.view.catalogue.cases.values())
        names = dict.fromkeys((*(case.route for case in cases), *self._totals.answers))
        answered = [((name, ""), self._totals.answers[name]) for name in names]
        answered += [(key, count.requests) for key, count in routes]
        yield metrics.ANSWERS.family(answered)
        yield metrics.KEPT.family((key, count.kept) for key, count in routes)
        recent = read_recent(self._boards()).items()
        yield metrics.ATTAINED.family((key, attained.share) for key, attained in recent)
        yield metrics.PROMISED.family((key, count.slo.share) for key, count in routes)


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
