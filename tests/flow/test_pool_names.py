"""Which names of a pool's tables clients may ask for, and where requests for them go."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest

from tests.fakes.pool_member import PoolMember, pool_member
from tg_flow.providers import open_provider
from tg_flow.providers.pool.provider import Pool
from tg_schema import TextCompletionRequest


@pytest.fixture
async def members(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[PoolMember]]:
    monkeypatch.delenv("POOL_API_KEY", raising=False)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(pool_member()) for _ in range(2)]


async def ask(tables: list[dict[str, Any]], upstream: str, adapter: str | None) -> dict[str, str]:
    """Asks once; what the pool announces."""
    options = {"pools": tables, "upstream_model": upstream, "adapter_source": "/a/{adapter}", "scraped": False}
    pool = await open_provider("pool", "m", options)
    assert isinstance(pool, Pool)
    async with aclosing(pool):
        async for _ in pool.on_request(TextCompletionRequest(prompt="hi", adapter=adapter)):
            pass
        return dict(pool.adapters)


async def test_each_name_of_a_table_can_be_asked_and_a_base_model_is_not_loaded(members: list[PoolMember]) -> None:
    chat = {"name": "chat", "endpoints": [members[0].address], "models": ["llama"], "adapters": ["sentiment"]}
    batch = {"name": "batch", "endpoints": [members[1].address], "models": ["small"]}
    announced = await ask([chat, batch], "llama", "small")
    assert announced == {"sentiment": "/a/sentiment", "small": "small"}
    assert [[body["model"] for body in member.asked] for member in members] == [[], ["small"]]


async def test_servers_may_know_the_configured_model_by_a_name_of_their_own(members: list[PoolMember]) -> None:
    await ask([{"name": "chat", "endpoints": [members[0].address], "models": ["llama"]}], "meta/llama", None)
    assert [body["model"] for body in members[0].asked] == ["meta/llama"]
