"""A real Envoy that sends the picker no bodies of answers: what is known of a request, and until when it is counted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest
import pytest_asyncio

from tests.fakes.pool_member import PoolMember, pool_member
from tests.free_port import free_port
from tests.picker.extproc.envoy_server import envoy
from tests.picker.extproc.scripted_picker import ScriptedPicker
from tg_picker.extproc.picker_server import serve_picker

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

World = tuple[str, PoolMember, ScriptedPicker, aiohttp.ClientSession]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder, picker = tmp_path_factory.mktemp("unread"), ScriptedPicker()
    async with AsyncExitStack() as stack:
        member = await stack.enter_async_context(pool_member())
        # Each request meets a server that is gone first.
        picker.addresses, picker.takes_list = (f"127.0.0.1:{free_port()}", member.address), False
        server = await stack.enter_async_context(serve_picker(picker, "127.0.0.1:0"))
        port = int(server.address.rpartition(":")[2])
        servers = [member.port, free_port(), free_port()]
        url = await stack.enter_async_context(envoy(folder, "unread-answers", port, servers))
        yield url, member, picker, await stack.enter_async_context(aiohttp.ClientSession())


async def test_an_answer_is_counted_until_its_end_though_nothing_of_it_is_sent(world: World) -> None:
    url, member, picker, session = world
    member.gate.clear()
    try:
        body = {"model": "other", "stream": True}
        async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
            async with asyncio.timeout(30):
                first = await answer.content.readuntil(b"\n\n")
            course = picker.courses[-1]
            # Its call to the picker ends after that of the stream would have, had Envoy ended that one at its headers.
            async with session.get(f"{url}/v1/models") as other:
                assert (await other.json())["port"] == member.port
            async with asyncio.timeout(30):
                await picker.courses[-1].over.wait()
            assert not course.over.is_set()
            member.gate.set()
            rest = await answer.content.read()
    finally:
        member.gate.set()
    assert b'"I "' in first
    assert rest.endswith(b"data: [DONE]\n\n")
    async with asyncio.timeout(30):
        await course.over.wait()
    assert course.told == [("served", member.address), ("respond", 200, ""), "begin", None]
    asked = next(each for each in picker.asked if each.body)
    assert asked.is_unread
    assert member.asked[-1]["model"] == "base"


async def test_a_client_that_leaves_releases_its_place(world: World) -> None:
    url, member, picker, session = world
    member.gate.clear()
    member.left.clear()
    try:
        answer = await session.post(f"{url}/v1/chat/completions", json={"model": "m", "stream": True})
        await answer.content.readuntil(b"\n\n")
        answer.close()
        async with asyncio.timeout(30):
            await picker.courses[-1].over.wait()
            await member.left.wait()
    finally:
        member.gate.set()


async def test_status_and_load_are_told(world: World) -> None:
    url, member, picker, session = world
    member.load, member.status = "TEXT named_metrics.kv_cache_usage_perc=0.4", 404
    try:
        async with session.post(f"{url}/v1/completions", json={"model": "m"}) as answer:
            assert answer.status == 404
    finally:
        member.load, member.status = "", 200
    assert ("respond", 404, "TEXT named_metrics.kv_cache_usage_perc=0.4") in picker.courses[-1].told
    async with session.post(f"{url}/v1/completions", json={"model": "refuse-429"}) as answer:
        assert answer.status == 429
