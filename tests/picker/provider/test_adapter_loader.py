"""An adapter of a route that no server has is loaded where its request goes, if it is known where it comes from."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.fakes.pool_member import PoolMember, pool_member
from tests.until import until
from tg_flow.providers import open_provider
from tg_picker.provider.provider import Pool
from tg_schema import TextCompletionRequest
from tg_schema.errors import BadRequest, NotFound

REQUEST = TextCompletionRequest(prompt="hi", adapter="x")


@pytest.fixture
async def members(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[PoolMember]]:
    monkeypatch.delenv("POOL_API_KEY", raising=False)
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(pool_member()) for _ in range(2)]
        for member in found:
            member.adapters = set()
        yield found


@asynccontextmanager
async def open_pool(members: list[PoolMember], *, hedge: float = 0.0) -> AsyncIterator[Pool]:
    places = [member.address for member in members]
    table = {"name": "chat", "endpoints": places, "adapters": ["x"]}
    options = {"pools": [table], "adapter_source": "/a/{adapter}", "scraped": False, "hedge": hedge}
    provider = await open_provider("pool", "m", options)
    assert isinstance(provider, Pool)
    try:
        yield provider
    finally:
        await provider.aclose()


@pytest.fixture
async def pool(members: list[PoolMember]) -> AsyncIterator[Pool]:
    async with open_pool(members) as provider:
        yield provider


async def ask(pool: Pool) -> str:
    return "".join([record.response or "" async for record in pool.on_request(REQUEST)])


def loads(members: list[PoolMember]) -> list[int]:
    """How often each server was told to load it."""
    return [member.asked.count({"lora_name": "x", "lora_path": "/a/x"}) for member in members]


def requests(pool: Pool) -> int:
    return sum(pool._picker.scheduler.server(endpoint).requests for endpoint in pool.view.endpoints)


async def test_requests_that_come_together_load_it_once(members: list[PoolMember], pool: Pool) -> None:
    said = await asyncio.gather(*(ask(pool) for _ in range(5)))
    assert said[0] in {f"I am {member.port}" for member in members}
    assert max(loads(members)) == 1
    again = loads(members)
    await ask(pool)
    assert loads(members) == again


async def test_what_a_server_has_already_is_no_failure(members: list[PoolMember], pool: Pool) -> None:
    for member in members:
        member.adapters = {"x"}
    assert [bool(await ask(pool)) for _ in range(3)] == [True] * 3
    assert sum(loads(members)) == 1


async def test_a_server_that_lost_it_loads_it_when_the_next_request_goes_there(
    members: list[PoolMember], pool: Pool
) -> None:
    await ask(pool)
    first = loads(members).index(1)
    members[first].adapters = set()
    assert await ask(pool) == f"I am {members[1 - first].port}"
    assert loads(members) == [1, 1]
    # The other one is gone too, so that the first is asked again.
    members[1 - first].status = 503
    assert await ask(pool) == f"I am {members[first].port}"
    assert loads(members)[first] == 2


@pytest.mark.parametrize("hedge", [0.0, 0.5])
async def test_requests_that_find_it_lost_everywhere_load_it_anew(members: list[PoolMember], hedge: float) -> None:
    async with open_pool(members, hedge=hedge) as pool:
        await ask(pool)
        first = loads(members).index(1)
        members[first].status = 503
        assert await ask(pool) == f"I am {members[1 - first].port}"
        for member in members:
            member.status, member.adapters = 200, set()
        said = await asyncio.gather(*(ask(pool) for _ in range(5)))
        assert set(said) <= {f"I am {member.port}" for member in members}
        assert requests(pool) == 0


async def test_a_server_that_loads_it_and_lacks_it_still_is_asked_twice(members: list[PoolMember]) -> None:
    async with open_pool(members[:1]) as pool:
        members[0].keeps_adapters = False
        with pytest.raises(NotFound, match="has the adapter 'x'"):
            await ask(pool)
        assert loads(members) == [2, 0]
        assert requests(pool) == 0


async def test_servers_that_load_nothing_say_404_and_are_not_told_each_time(
    members: list[PoolMember], pool: Pool
) -> None:
    for member in members:
        member.status = 404
    for _ in range(3):
        with pytest.raises(NotFound, match="has the adapter 'x'"):
            await ask(pool)
    assert loads(members) == [1, 1]
    assert requests(pool) == 0


async def test_who_leaves_while_it_loads_leaves_nothing_and_the_next_one_loads_it(
    members: list[PoolMember], pool: Pool
) -> None:
    for member in members:
        member.gate.clear()
    leaves, stays = asyncio.create_task(ask(pool)), asyncio.create_task(ask(pool))
    await until(lambda: requests(pool) == 2 and sum(loads(members)) >= 1)
    leaves.cancel()
    await asyncio.wait([leaves])
    assert requests(pool) == 1
    for member in members:
        member.gate.set()
    assert "I am" in await stays
    assert requests(pool) == 0


async def test_what_no_route_names_is_never_a_part_of_a_path(members: list[PoolMember]) -> None:
    options = {"endpoints": [members[0].address], "adapter_source": "/a/{adapter}", "scraped": False}
    provider = await open_provider("pool", "m", options)
    assert isinstance(provider, Pool)
    try:
        with pytest.raises(NotFound):
            await ask(provider)
    finally:
        await provider.aclose()
    assert loads(members) == [0, 0]


async def test_a_source_needs_a_place_for_the_name() -> None:
    with pytest.raises(BadRequest, match=r"adapter_source needs \{adapter\} once"):
        await open_provider("pool", "m", {"endpoints": ["127.0.0.1:1"], "adapter_source": "/a"})
