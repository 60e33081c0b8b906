"""The provider of docs/adding-a-provider.md, as the page has it, through every cell of the matrix."""

import re
from pathlib import Path

import pytest

from tests.fakes import parrot
from tests.fakes.parrot_server import ParrotServer
from tests.provider_matrix.case import Case
from tests.provider_matrix.cell import Cell, play
from tests.provider_matrix.cells import CELLS

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-provider.md"
CODE = Path(parrot.__file__).read_text("utf-8")
CASE = Case(
    "tests.fakes.parrot:Parrot",
    ParrotServer.running,
    options=lambda url: {"base_url": url},
    environment=lambda _: {"PARROT_KEY": ParrotServer.key},
    tells=frozenset({"retry_after", "error_event"}),
)


def test_the_page_shows_this_code() -> None:
    """Linted, and held to strict types, where it stands as a file."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert CODE in blocks


def test_it_is_small() -> None:
    assert len([line for line in CODE.splitlines() if line.strip()]) < 60


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name.replace(" ", "-"))
async def test_the_provider_of_the_page(cell: Cell) -> None:
    await play(CASE, cell)
