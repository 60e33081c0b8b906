"""docs/agents.md does what it says: its tool and its configuration are taken from the page as they stand there."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.flow.command import started
from tg_client import TgClient

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agents.md").read_text("utf-8")


def block(language: str) -> str:
    """The page's first block in a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    (tmp_path / "units.py").write_text(block("python"), "utf-8")
    provider = "tests.fakes.obedient_llm:ObedientLlm"
    config = re.sub(r'provider = "openai".*\noptions = .*\n', f'provider = "{provider}"\n', block("toml"), count=1)
    assert provider in config
    (tmp_path / "tokengrid.toml").write_text(config, "utf-8")
    options = ("--config", str(tmp_path / "tokengrid.toml"), "--port", "0", "--log-level", "error")
    async with started("tg-serve", *options, PYTHONPATH=f"{tmp_path}:{ROOT}") as server:
        assert server.stdout is not None
        ready = await asyncio.wait_for(server.stdout.readline(), 30)
        yield ready.decode().split()[1]


async def test_the_tool(url: str) -> None:
    async with TgClient(url, retries=0) as client:
        flow = client.flow()
        (told,) = msgspec.json.decode((await flow.agent("tools")).answer)
        answers = [
            (await flow.agent(f"to_metres {arguments}")).answer
            for arguments in ('{"amount": 2, "unit": "mile"}', '{"amount": 2, "unit": "ell"}', '{"amount": "two"}')
        ]
    assert (told["name"], told["description"]) == ("to_metres", "Convert a length to metres.")
    assert told["parameters"]["properties"] == {
        "amount": {"type": "number"},
        "unit": {"type": "string", "description": "mile, yard or foot"},
    }
    assert answers[:2] == ["3218.688", "error: there is no unit ell; there are mile, yard, foot"]
    assert answers[2].startswith("error: the arguments do not fit the tool's schema")


def test_ten_lines() -> None:
    code = [line for line in block("python").splitlines() if line]
    assert len(code) <= 10
