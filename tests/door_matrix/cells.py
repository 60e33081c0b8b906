"""The columns that are run over the memory bus, all in one process."""

from typing import Final

from tests.door_matrix.cell import Cell
from tests.door_matrix.refusal_cells import REFUSAL_CELLS
from tests.door_matrix.stream_cells import STREAM_CELLS

CELLS: Final[tuple[Cell, ...]] = (*REFUSAL_CELLS, *STREAM_CELLS)
