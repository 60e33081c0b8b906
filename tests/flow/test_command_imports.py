"""What a command imports: little for its help, and no server's library for a call."""

from collections.abc import AsyncIterator

import pytest

from tests.flow.loaded_modules import HEAVY, shown
from tests.flow.open_gateway import Opened, open_gateway


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    async with open_gateway() as opened:
        yield opened


@pytest.mark.parametrize(
    ("package", "command"),
    [*(("tg_cli", command) for command in ("llm", "prompt", "chat", "lmtp", "models")), ("tg_serve", "serve")],
)
async def test_help_imports_almost_nothing(package: str, command: str) -> None:
    done = await shown(package, command, "--help")
    assert "Usage: tg-" in done.out
    loaded = set(done.err.split())
    assert not loaded & (HEAVY | {"aiohttp", "httpx2", "msgspec", "asyncio"})


# One HTTP client is enough: a second one would take as long as all else before the first text.
NEVER = HEAVY | {"aiohttp", "httpx", "urllib3", "yarl"}


@pytest.mark.parametrize(
    ("command", "arguments", "out"),
    [
        ("llm", ["text", "3"], "0 1 2 \n"),
        ("prompt", ["text", "a=1"], 'a="1" \n'),
        # Nobody serves agents here, which is told after all was imported that shows an answer.
        ("agent", ["why?"], ""),
    ],
)
async def test_a_call_imports_the_client_only(opened: Opened, command: str, arguments: list[str], out: str) -> None:
    done = await shown("tg_cli", command, *arguments, "-u", opened.gateway.url)
    assert done.out == out
    loaded = set(done.err.split())
    assert "tg_client.tg_client" in loaded
    assert not loaded & NEVER
