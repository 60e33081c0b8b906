"""Pickers of a process -> its pages: all boards, and what they counted together."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry

from tg_picker.status.board_collector import BoardCollector
from tg_picker.status.picker_totals import PickerTotals
from tg_picker.status.pool_board import PoolBoard


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
        """What was counted until now."""
        self._totals.settle()
        return self._totals

    @property
    def shown(self) -> tuple[PoolBoard, ...]:
        """Those that are shown now, the oldest first."""
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
            # While it is known which names its operator gave.
            self._totals.settle()
            self._shown.remove(board)


BOARDS: Final = PoolBoards()
"""Those of this process."""
