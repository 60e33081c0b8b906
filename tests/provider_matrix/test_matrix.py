"""Every provider x every cell, each with its real SDK against its wire on the loopback interface."""

import pytest

from tests.provider_matrix.case import Case, cases
from tests.provider_matrix.cells import CELLS, Cell, play


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.provider)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name.replace(" ", "-"))
async def test_matrix(case: Case, cell: Cell) -> None:
    await play(case, cell)
