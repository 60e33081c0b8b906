"""A real Envoy with the shipped configurations, the picker's gRPC service, and fake model servers behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
import pytest_asyncio
from typing_extensions import override

from tests.fakes.pool_member import PoolMember, pool_member
from tests.free_port import free_port
from tests.picker.extproc.envoy_server import envoy
from tests.picker.extproc.scripted_picker import ScriptedPicker
from tg_picker.core import InstanceUsage
from tg_picker.extproc.picker_server import MAX_HELD_BYTES, PickerService, serve_picker

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


@dataclass
class World:
    url: str
    members: tuple[PoolMember, ...]
    picker: ScriptedPicker
    session: aiohttp.ClientSession
    mode: str
    port: int
    """Of the picker."""
    closed: str
    """An address of the cluster at which nobody listens."""


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["duplex", "buffered"])
async def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder: Path = tmp_path_factory.mktemp("envoy")
    picker, closed = ScriptedPicker(), free_port()
    picker.takes_list = request.param == "duplex"
    async with AsyncExitStack() as stack:
        members = tuple([await stack.enter_async_context(pool_member()) for _ in range(2)])
        server = await stack.enter_async_context(serve_picker(picker, "127.0.0.1:0"))
        url = await stack.enter_async_context(
            envoy(
                folder,
                request.param,
                int(server.address.rpartition(":")[2]),
                [*(member.port for member in members), closed],
            )
        )
        session = await stack.enter_async_context(aiohttp.ClientSession(read_bufsize=2**20))
        yield World(
            url, members, picker, session, request.param, int(server.address.rpartition(":")[2]), f"127.0.0.1:{closed}"
        )


async def test_an_answer_comes_from_the_picked_server(world: World) -> None:
    world.picker.addresses = (world.members[1].address,)
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with world.session.post(f"{world.url}/v1/chat/completions", json=body) as answer:
        assert answer.status == 200
        found = await answer.json()
    assert found["choices"][0]["message"]["content"] == f"I am {world.members[1].port}"
    course = world.picker.courses[-1]
    async with asyncio.timeout(30):
        await course.over.wait()
    assert course.told[-1] == InstanceUsage(7, 2, 3)
    assert ("respond", 200, "") in course.told
    assert "begin" in course.told


@pytest.mark.parametrize("size", [300_000, 1_200_000, 5_000_000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_large_bodies_arrive_whole(world: World, size: int, chunked: bool) -> None:
    world.picker.addresses = (world.members[0].address,)
    data = b'{"model": "m", "prompt": "' + b"x" * size + b'"}'

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    sent = pieces() if chunked else BytesIO(data)
    headers = {"Content-Type": "application/json"}
    async with world.session.post(f"{world.url}/v1/completions", data=sent, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert (await answer.json())["bytes"] == len(data)


async def test_trailers_end_a_body(world: World, tmp_path: Path) -> None:
    # Envoy 1.40 doubles the body if trailers come, the body is streamed and the route retries. So the shipped
    # configuration, which retries, leaves trailers of HTTP/1.1 switched off, as Envoy does.
    edits = {"stream_idle_timeout: 0s": "http_protocol_options: { enable_trailers: true }"}
    if world.mode == "duplex":
        edits["retry_policy: { retry_on"] = "# "
    world.picker.addresses = (world.members[0].address,)
    ports = [*(member.port for member in world.members), free_port()]
    async with envoy(tmp_path, world.mode, world.port, ports, edits) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nTrailer: x-last\r\n\r\n".encode())
        writer.write(b'e\r\n{"model": "m"}\r\n0\r\nx-last: 1\r\n\r\n')
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert f"I am {world.members[0].port}".encode() in answer


async def test_a_fallback_answers_for_a_server_that_is_gone(world: World) -> None:
    world.picker.addresses = (world.closed, world.members[1].address)
    async with world.session.post(f"{world.url}/v1/completions", json={"model": "m"}) as answer:
        assert answer.status == 200
    course = world.picker.courses[-1]
    async with asyncio.timeout(30):
        await course.over.wait()
    assert world.members[1].asked[-1] == {"model": "m"}
    assert ("served", world.members[1].address) in course.told


@pytest.mark.parametrize("spares", [0, 1, 2])
@pytest.mark.parametrize("knows", [False, True])
async def test_after_a_404_each_fallback_is_asked_once(world: World, spares: int, knows: bool) -> None:
    first, second = world.members
    # With two spares the first attempt meets nobody: a gone server and one without the adapter, both in one request.
    before = (world.closed,) * (spares == 2)
    world.picker.addresses = (*before, first.address, second.address)[: spares + 1]
    first.adapters, second.adapters = set(), {"a"} if knows else set()
    had = [len(member.asked) for member in world.members]
    # A client that writes these itself must not choose where its request is retried.
    headers = {"x-tg-next-endpoint-1": second.address, "x-envoy-max-retries": "5"}
    try:
        body = {"model": "a", "prompt": "x" * 200_000}
        async with world.session.post(f"{world.url}/v1/completions", json=body, headers=headers) as answer:
            assert answer.status == (200 if knows and spares else 404)
    finally:
        first.adapters = second.adapters = None
    assert [len(member.asked) - had for member, had in zip(world.members, had, strict=True)] == [1, min(spares, 1)]


async def test_a_body_above_the_limit_is_refused(world: World) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(33):
            yield b"x" * 2**20

    async with world.session.post(f"{world.url}/v1/completions", data=pieces()) as answer:
        assert answer.status == 413


@pytest.mark.parametrize("status", [400, 404, 429, 503])
async def test_a_refusal_is_the_answer(world: World, status: int) -> None:
    async with world.session.post(f"{world.url}/v1/chat/completions", json={"model": f"refuse-{status}"}) as answer:
        assert answer.status == status
        assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-saturated"
        assert answer.headers["retry-after"] == "2"
        assert (await answer.json())["error"]["message"] == "all are busy"


async def test_a_destination_of_the_client_is_overwritten(world: World) -> None:
    world.picker.addresses = (world.members[1].address,)
    headers = {"x-gateway-destination-endpoint": world.members[0].address}
    async with world.session.post(f"{world.url}/v1/completions", json={"model": "m"}, headers=headers) as answer:
        assert f"I am {world.members[1].port}" in await answer.text()
    assert world.members[1].headers[-1]["x-gateway-destination-endpoint"] == world.members[1].address


async def test_the_picker_gets_the_headers_that_it_reads_and_no_key(world: World) -> None:
    world.picker.addresses = (world.members[1].address,)
    read = {"x-slo-ttft-ms": "5", "x-gateway-inference-objective": "o", "x-llm-d-inference-fairness-id": "f"}
    headers = {**read, "x-request-id": "r", "Authorization": "Bearer k"}
    async with world.session.post(f"{world.url}/v1/completions", json={"model": "m"}, headers=headers) as answer:
        assert answer.status == 200
    told = world.picker.asked[-1].headers
    assert read.items() <= told.items()
    # Envoy makes an id of its own for a client from outside.
    assert told["x-request-id"]
    assert "authorization" not in told
    assert world.members[1].headers[-1]["authorization"] == "Bearer k"


class LeavingService(PickerService):
    """Its first call comes while its server is being stopped."""

    calls = 0

    @override
    async def process(self, _: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """See `PickerService`."""
        self.calls += 1
        if self.calls == 1:
            # As gRPC ends it then.
            await context.abort(grpc.StatusCode.CANCELLED)
        await super().process(_, context)


async def test_a_request_on_its_way_to_a_picker_that_leaves_goes_to_another_one(world: World, tmp_path: Path) -> None:
    world.picker.addresses = (world.members[0].address,)
    service, server = LeavingService(world.picker, MAX_HELD_BYTES), grpc.aio.server()
    server.add_generic_rpc_handlers((service.handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    ports = [*(member.port for member in world.members), free_port()]
    try:
        async with (
            asyncio.timeout(60),
            envoy(tmp_path, world.mode, port, ports) as url,
            world.session.post(f"{url}/v1/completions", json={"model": "m"}) as answer,
        ):
            assert answer.status == 200
    finally:
        await server.stop(None)
    assert service.calls == 2


async def test_a_stream_comes_piece_by_piece(world: World) -> None:
    member = world.members[0]
    world.picker.addresses = (member.address,)
    member.gate.clear()
    try:
        body = {"model": "m", "stream": True}
        async with world.session.post(f"{world.url}/v1/chat/completions", json=body) as answer:
            async with asyncio.timeout(30):
                first = await answer.content.readuntil(b"\n\n")
            member.gate.set()
            rest = await answer.content.read()
    finally:
        member.gate.set()
    assert b'"I "' in first
    assert rest.endswith(b"data: [DONE]\n\n")
    course = world.picker.courses[-1]
    async with asyncio.timeout(30):
        await course.over.wait()
    assert course.told[-1] == InstanceUsage(7, None, 3)


async def test_a_client_that_leaves_releases_its_place(world: World) -> None:
    member = world.members[0]
    world.picker.addresses = (member.address,)
    member.gate.clear()
    member.left.clear()
    try:
        answer = await world.session.post(f"{world.url}/v1/chat/completions", json={"model": "m", "stream": True})
        await answer.content.readuntil(b"\n\n")
        answer.close()
        async with asyncio.timeout(30):
            await world.picker.courses[-1].over.wait()
            await member.left.wait()
    finally:
        member.gate.set()


async def test_the_load_header_is_asked_for_and_read(world: World) -> None:
    member = world.members[0]
    world.picker.addresses = (member.address,)
    member.load = "TEXT named_metrics.kv_cache_usage_perc=0.4"
    try:
        async with world.session.post(f"{world.url}/v1/completions", json={"model": "m"}) as answer:
            await answer.read()
    finally:
        member.load = ""
    assert member.headers[-1]["endpoint-load-metrics-format"] == "text"
    assert ("respond", 200, "TEXT named_metrics.kv_cache_usage_perc=0.4") in world.picker.courses[-1].told
