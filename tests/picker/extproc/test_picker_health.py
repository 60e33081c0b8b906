"""The picker's health services, as a probe of an orchestrator and Envoy ask them."""

import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.picker.extproc.scripted_picker import ScriptedPicker
from tg_picker.extproc.picker_server import LIVENESS, READINESS, SERVICE, PickerServer, serve_picker
from tg_schema.errors import BadRequest

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
World = tuple[PickerServer, Any]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with (
        serve_picker(ScriptedPicker(), "127.0.0.1:0") as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield server, health_pb2_grpc.HealthStub(channel)


async def test_each_name_is_told_and_all_but_liveness_follow_the_servers(world: World) -> None:
    server, stub = world

    async def check() -> list[int]:
        asked = [health_pb2.HealthCheckRequest(service=name) for name in (LIVENESS, READINESS, SERVICE, "")]
        return [(await stub.Check(each)).status for each in asked]

    assert await check() == [SERVING, NOT_SERVING, NOT_SERVING, NOT_SERVING]
    await server.set_ready(True)
    assert await check() == [SERVING] * 4
    await server.set_ready(False)
    assert await check() == [SERVING, NOT_SERVING, NOT_SERVING, NOT_SERVING]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(health_pb2.HealthCheckRequest(service="other"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_a_change_is_watched_and_all_names_are_listed(world: World) -> None:
    server, stub = world
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=READINESS))
    assert (await watch.read()).status == NOT_SERVING
    await server.set_ready(True)
    assert (await watch.read()).status == SERVING
    watch.cancel()
    listed = await stub.List(health_pb2.HealthListRequest())  # type: ignore[attr-defined]
    assert {name: told.status for name, told in listed.statuses.items()} == dict.fromkeys(
        ("", LIVENESS, READINESS, SERVICE), SERVING
    )


@pytest.mark.parametrize(("listen", "taken"), [("[::]", {"127.0.0.1", "[::1]"}), ("[::1]", {"[::1]"})])
async def test_where_pickers_listen(listen: str, taken: set[str]) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this host has no IPv6")
    # A second process would listen there too.
    async with (
        serve_picker(ScriptedPicker(), f"{listen}:0") as first,
        serve_picker(ScriptedPicker(), first.address) as second,
    ):
        host, _, port = second.address.rpartition(":")
        assert (host, second.address) == (listen, first.address)
        for each in ("127.0.0.1", "[::1]"):
            async with grpc.aio.insecure_channel(f"{each}:{port}") as channel:
                stub: Any = health_pb2_grpc.HealthStub(channel)
                asking = stub.Check(health_pb2.HealthCheckRequest(service=LIVENESS))
                expected = grpc.StatusCode.OK if each in taken else grpc.StatusCode.UNAVAILABLE
                assert await asking.code() == expected


async def test_an_address_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BadRequest, match="cannot listen on"):
        await serve_picker(ScriptedPicker(), f"127.0.0.1:{taken.getsockname()[1]}").__aenter__()
