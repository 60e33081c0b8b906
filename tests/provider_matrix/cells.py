"""The columns of the matrix."""

from tests.provider_matrix.answer_cells import ANSWER_CELLS
from tests.provider_matrix.cell import Cell
from tests.provider_matrix.fault_cells import FAULT_CELLS

CELLS: tuple[Cell, ...] = (*ANSWER_CELLS, *FAULT_CELLS)
