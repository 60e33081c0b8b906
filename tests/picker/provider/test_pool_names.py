"""Which names of a pool's tables clients may ask for, and where requests for them go."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.fakes.pool_member import PoolMember, pool_member
from tests.flow.open_gateway import open_gateway, until_listed
from tests.picker.pools.test_pool_resources import POOL, REWRITE, ROUTE
from tg_flow.providers import open_provider
from tg_picker.provider.provider import Pool
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


ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
DOORS: list[tuple[str, dict[str, Any]]] = [
    ("v1/chat/completions", ASKED),
    ("v1/responses", {"input": "hi"}),
    ("v1/messages", ASKED),
    ("api/chat", ASKED),
    ("mlc/v1/chat/completions", ASKED),
    ("api/v1/text-completion", {"prompt": "hi"}),
]


@pytest.mark.parametrize("hedge", [0, 0.1])
@pytest.mark.parametrize("says", [True, False])
async def test_each_door_says_which_version_answered(
    members: list[PoolMember], tmp_path: Path, hedge: float, says: bool
) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text(f"{POOL}---{ROUTE}---{REWRITE.replace('weight: 9', 'weight: 0')}")
    members[0].says_model = says
    options = {"endpoints": [members[0].address], "labels": {"app": "vllm"}, "resources": [str(file)], "hedge": hedge}
    pool = await open_provider("pool", "counting", {**options, "scraped": False})
    async with open_gateway(instead=pool) as it:
        await until_listed(it.http)
        for path, body in DOORS:
            for stream in (False, True):
                asked = {**body, "model": "sentiment", "streaming" if "prompt" in body else "stream": stream}
                async with it.http.post(path, json=asked) as response:
                    told = await response.text()
                assert response.status == 200, told
                assert set(re.findall(r'"model": ?"([^"]*)"', told)) == {"sentiment-v2"}, (path, told)


async def test_a_model_that_no_route_leads_to_is_not_listed(members: list[PoolMember]) -> None:
    tables = [
        {"name": name, "endpoints": [member.address], "models": [name]}
        for name, member in zip(("llama", "small"), members, strict=True)
    ]
    pool = await open_provider("pool", "counting", {"pools": tables, "scraped": False})
    async with open_gateway(instead=pool) as it:
        async with asyncio.timeout(30):
            while True:
                if listed := await list_models(it.http):
                    break
                await asyncio.sleep(0.01)
        assert listed == ["llama", "small"]
        for model, status in {"llama": 200, "small": 200, "counting": 404, "none": 404}.items():
            async with it.http.post("v1/chat/completions", json={**ASKED, "model": model}) as response:
                told = await response.text()
            assert response.status == status, told
            assert status == 200 or "llama, small" in told


async def list_models(http: ClientSession) -> list[str]:
    async with http.get("v1/models") as response:
        return [each["id"] for each in (await response.json())["data"]]
