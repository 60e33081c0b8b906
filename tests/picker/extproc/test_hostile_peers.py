"""What wrong or hostile peers of the picker get, and that the others are served meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from tests.picker.extproc.http2_peer import (
    ACK,
    BEGINNING,
    DATA,
    END_STREAM,
    PING,
    RST_STREAM,
    SETTINGS,
    connected,
    opened,
)
from tests.picker.extproc.http2_peer import write_frame as frame
from tests.picker.extproc.process_calls import PROCESS, process_of
from tests.picker.extproc.scripted_picker import ScriptedPicker
from tests.picker.extproc.silent_connections import silent_connections
from tests.picker.extproc.test_exchange import BODY, headers, kinds
from tests.picker.extproc.test_exchange import body as body_of
from tg_picker.extproc import wire
from tg_picker.extproc.decision import Asked, Directed, Refused
from tg_picker.extproc.picker_server import MAX_HELD_BYTES, SERVER_OPTIONS, PickerServer, serve_picker

_Mode = wire.ProcessingMode


class Picker(ScriptedPicker):
    """It decides nothing about a model called `never`."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses = ("10.0.0.1:8000",)

    @override
    async def decide(self, asked: Asked) -> Directed | Refused:
        if asked.body and b"never" in asked.body:
            await asyncio.Event().wait()
        return await super().decide(asked)


@asynccontextmanager
async def picking(options: Mapping[str, int] = {}, max_held: int = MAX_HELD_BYTES) -> AsyncIterator[PickerServer]:
    """A picker's server with some of gRPC's options in place of ours."""
    assert options.keys() <= dict(SERVER_OPTIONS).keys(), "a test sets other seconds, and no option that we do not set"
    changed = tuple({**dict(SERVER_OPTIONS), **options}.items())
    async with asyncio.timeout(60), serve_picker(Picker(), "127.0.0.1:0", max_held, changed) as server:
        yield server


@asynccontextmanager
async def asking(server: PickerServer) -> AsyncIterator[Any]:
    """A call of `Process` on a connection of its own, for each that is made."""
    own = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(server.address, options=own) as channel:
        yield process_of(channel)


async def ask(process: Any) -> None:
    """Ask once, and get the answer."""
    call = process()
    for each in (headers(), body_of(BODY)):
        await call.write(each)
    assert kinds([await call.read()]) == ["request_headers"]
    call.cancel()


async def read_all(call: Any) -> None:
    """Read until the call has ended."""
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_silent_connections_keep_nobody_out_and_are_closed() -> None:
    # As ours, in less time.
    async with (
        picking({"grpc.server_handshake_timeout_ms": 300}) as server,
        silent_connections(server.address, 520) as ended,
        asking(server) as process,
    ):
        await ask(process)
        await ended()


@pytest.mark.parametrize("sent", [b"PRI * HT", BEGINNING[:24]])
async def test_a_connection_that_stops_in_its_beginning_is_closed(sent: bytes) -> None:
    async with picking({"grpc.server_handshake_timeout_ms": 100}) as server, connected(server.address, sent) as peer:
        assert b"settings" in await peer.closed()


async def test_a_connection_without_a_call_is_closed() -> None:
    async with picking({"grpc.max_connection_idle_ms": 1000}) as server, connected(server.address) as peer:
        await peer.send(frame(SETTINGS, ACK, 0))
        assert b"idle" in await peer.closed()


FLOODS = {
    "pings": lambda _: frame(PING, 0, 0, bytes(8)),
    "settings": lambda _: frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff"),
    "calls without a message": lambda at: opened(2 * at + 1, PROCESS),
    "calls that are reset": lambda at: opened(2 * at + 1, PROCESS) + frame(RST_STREAM, 0, 2 * at + 1, bytes(4)),
    "messages that cannot be read": lambda at: (
        opened(2 * at + 1, PROCESS) + frame(DATA, END_STREAM, 2 * at + 1, b"\0\0\0\0\3\xff\xff\xff")
    ),
    "methods that do not exist": lambda at: opened(2 * at + 1, "/none"),
}


@pytest.mark.parametrize("case", FLOODS)
async def test_a_connection_that_floods_does_not_delay_another(case: str) -> None:
    async def flood(address: str) -> None:
        # As often as the server closes the connection there is another one.
        while True:
            async with connected(address) as peer:
                reading = asyncio.ensure_future(peer.closed())
                for start in count(0, 200):
                    if reading.done():
                        break
                    await peer.send(b"".join(map(FLOODS[case], range(start, start + 200))))
                    await asyncio.sleep(0)
                reading.cancel()

    async with picking() as server, asking(server) as process:
        flooding = asyncio.ensure_future(flood(server.address))
        try:
            for _ in range(30):
                async with asyncio.timeout(2):
                    await ask(process)
        finally:
            flooding.cancel()


async def test_signs_of_life_may_be_asked_for_at_any_rate() -> None:
    async with picking() as server, connected(server.address) as peer:
        for at in range(100):
            await peer.send(frame(PING, 0, 0, at.to_bytes(8)))
            while (got := await peer.frame()) != (PING, ACK, at.to_bytes(8)):
                assert got is not None


async def test_a_peer_that_gives_no_sign_of_life_loses_its_call() -> None:
    soon = {"grpc.keepalive_time_ms": 1000, "grpc.keepalive_timeout_ms": 100, "grpc.http2.ping_timeout_ms": 100}
    async with picking(soon) as server, connected(server.address) as peer:
        await peer.send(frame(SETTINGS, ACK, 0) + opened(1, PROCESS))
        assert b"ping_timeout" in await peer.closed()


@pytest.mark.parametrize("mode", [_Mode.BUFFERED, _Mode.FULL_DUPLEX_STREAMED])
async def test_what_all_calls_hold_has_a_bound_and_the_largest_end_first(mode: _Mode.BodySendMode) -> None:
    def large(size: int) -> list[wire.ProcessingRequest]:
        return [headers(mode=mode, more={"content-type": "text/plain"}), body_of(b"never" + bytes(size))]

    with capture_logs() as lines:
        async with picking(max_held=3_000_000) as server, asking(server) as process:
            calls = [process() for _ in range(6)]
            # The second one ends for the sixth, since it holds the most.
            for call, size in zip(calls, (10_000, 900_000, 600_000, 600_000, 600_000, 700_000), strict=True):
                for each in large(size):
                    await call.write(each)
                await ask(process)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await read_all(calls[1])
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            for call in calls:
                call.cancel()
    assert [line["event"] for line in lines] == ["picker.call_ended"]


async def test_five_hundred_calls_at_once_are_all_answered() -> None:
    async with picking() as server, asking(server) as process:
        await asyncio.gather(*(ask(process) for _ in range(500)))
