"""Every provider x every cell, each with its real SDK against its wire on the loopback interface."""

import pytest
from _pytest.mark import ParameterSet

from tests.provider_matrix.case import Case, cases
from tests.provider_matrix.cell import Cell, play
from tests.provider_matrix.cells import CELLS


def _marked(case: Case) -> ParameterSet:
    return pytest.param(case, id=case.provider, marks=[pytest.mark.model] if case.own else [])


@pytest.mark.parametrize("case", [_marked(case) for case in cases()])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name.replace(" ", "-"))
async def test_matrix(case: Case, cell: Cell) -> None:
    await play(case, cell)
