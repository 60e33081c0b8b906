"""The provider of docs/adding-a-provider.md, as the page has it, through every cell of the matrix."""

import re
import sys
from pathlib import Path

import pytest

from tests.fakes import parrot
from tests.fakes.openai_server import OpenAiServer
from tests.fakes.parrot_server import ParrotServer
from tests.provider_matrix.case import Case
from tests.provider_matrix.cell import Cell, play
from tests.provider_matrix.cells import CELLS
from tg_flow.providers import open_provider
from tg_schema import Sampling, TextCompletionRequest

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


async def test_the_provider_of_the_page_with_an_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's, who has done what the page says, outside this tree."""
    for name in ("magpie", "magpie_client"):
        written = re.search(rf"into `{name}.py`:\n\n```python\n(.*?)```\n", PAGE.read_text("utf-8"), re.DOTALL)
        assert written is not None
        (tmp_path / f"{name}.py").write_text(written[1], "utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MAGPIE_KEY", "the-key")
    async with OpenAiServer.running() as server:
        server.key = "the-key"
        provider = await open_provider(
            "magpie:Magpie", "here", {"base_url": server.url, "upstream_model": server.model}
        )
        request = TextCompletionRequest("Be brief.", "hi", streaming=True, sampling=Sampling(max_tokens=9))
        records = [record async for record in provider.on_request(request)]
        await provider.aclose()
    assert "".join(record.response or "" for record in records) == "Hello €!"
    assert records[-1].finish_reason == "stop"
    body = server.exchanges[0].body
    assert body is not None
    assert [(turn.role, turn.content) for turn in body.messages] == [("system", "Be brief."), ("user", "hi")]
    assert (body.model, body.max_tokens) == (server.model, 9)
