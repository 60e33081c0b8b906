"""Pickers of a process -> its pages: all boards, and what they counted together."""

from collections.abc import Iterable, Iterator
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


class PoolBoards(Collector):
    """The boards that are shown. Its metrics appear with the first one: a process without pools has none.

    Args:
        registry: that exports the metrics.

    Attributes:
        shown: the boards that are shown now, the oldest first.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._is_registered = False
        self.shown: list[PoolBoard] = []
        self._totals = PickerTotals(lambda name: any(board.names(name) for board in self.shown))

    @property
    def totals(self) -> PickerTotals:
        """The counts until now."""
        self._totals.settle()
        return self._totals

    @contextmanager
    def show(self, board: PoolBoard) -> Iterator[None]:
        """Show a board until the block is left."""
        if not self._is_registered:
            self._is_registered = True
            self._registry.register(self)
        self.shown.append(board)
        try:
            yield
        finally:
            # Settle now, while the operator's names are still known.
            self._totals.settle()
            self.shown.remove(board)

    @override
    def collect(self) -> Iterable[Metric]:
        yield from add_older(chain(self.totals.registry.collect(), self._routes(), self._boards_now()))

    def _boards_now(self) -> Iterator[Metric]:
        # The commit that an installed package was made of is not known.
        builds = [(("", _BUILD), 1.0)] if self.shown else []
        yield metrics.INFO.family(builds)
        pools = find_pools(self.shown)
        yield from pool_gauges(pools)
        yield from server_gauges(pools)
        yield from queue_gauges(self.shown)

    def _routes(self) -> Iterator[Metric]:
        routes = self._totals.routes.items()
        cases = (case for board in self.shown for case in board.pools.view.catalogue.cases.values())
        names = dict.fromkeys((*(case.route for case in cases), *self._totals.answers))
        answered = [((name, ""), self._totals.answers[name]) for name in names]
        answered += [(key, count.requests) for key, count in routes]
        yield metrics.ANSWERS.family(answered)
        yield metrics.KEPT.family((key, count.kept) for key, count in routes)
        recent = read_recent(self.shown).items()
        yield metrics.ATTAINED.family((key, attained.share) for key, attained in recent)
        yield metrics.PROMISED.family((key, count.slo.share) for key, count in routes)


BOARDS: Final = PoolBoards()
"""The boards of this process."""
