"""The provider of docs/adding-a-provider.md, as the page has it, through every cell of the matrix."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.parrot_server import ParrotServer
from tests.provider_matrix.case import Case
from tests.provider_matrix.cell import Cell, play
from tests.provider_matrix.cells import CELLS

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-provider.md"
CASE = Case(
    "parrot_of_the_page:Parrot",
    ParrotServer.running,
    options=lambda url: {"base_url": url},
    environment=lambda _: {"PARROT_KEY": ParrotServer.key},
    tells=frozenset({"retry_after", "error_event"}),
)


def code() -> str:
    blocks: list[str] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return next(block for block in blocks if "class " in block)


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "parrot_of_the_page.py").write_text(code())
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def test_it_is_small() -> None:
    assert len([line for line in code().splitlines() if line.strip()]) < 60


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name.replace(" ", "-"))
async def test_the_provider_of_the_page(cell: Cell) -> None:
    await play(CASE, cell)
