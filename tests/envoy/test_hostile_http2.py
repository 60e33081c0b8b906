"""What a wrong or hostile peer gets from our half of HTTP/2: an end of the stream or of the connection, and no more."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.envoy.http2_peer import BEGINNING, ECHO, MAX_MESSAGE, connected, echo, echo_server, message, opened
from tests.until import until
from tg_gateway.envoy.grpc_call import GrpcCall
from tg_gateway.envoy.grpc_server import GrpcServer, serve_grpc
from tg_gateway.envoy.http2_connection import CONNECTION_WINDOW, MAX_IDLE_FRAMES, MAX_SETTINGS, MAX_STREAMS
from tg_gateway.envoy.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_FRAME_BYTES,
    MAX_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    write_frame,
)
from tg_gateway.envoy.http2_stream import STREAM_WINDOW

World = tuple[GrpcServer, str]
PIECE = bytes(MAX_FRAME_BYTES)
WIDE = MAX_WINDOW.to_bytes(4)
NOTHING = (0).to_bytes(4)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with asyncio.timeout(60), echo_server() as server:
        yield server
        await until(lambda: not server[0].calls)


def setting(name: int, value: int) -> bytes:
    return write_frame(SETTINGS, 0, 0, name.to_bytes(2) + value.to_bytes(4))


CONNECTIONS = {
    "no preface": (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", ErrorCode.PROTOCOL_ERROR),
    "no settings first": (PREFACE + write_frame(PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "a frame too large": (BEGINNING + b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", ErrorCode.FRAME_SIZE_ERROR),
    "data of no stream": (BEGINNING + write_frame(DATA, 0, 0, b"x"), ErrorCode.PROTOCOL_ERROR),
    "data of an idle stream": (BEGINNING + write_frame(DATA, 0, 1, b"x"), ErrorCode.PROTOCOL_ERROR),
    "padding too long": (
        BEGINNING + opened(1) + write_frame(DATA, PADDED, 1, b"\x05abc"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "an even stream": (BEGINNING + opened(2), ErrorCode.PROTOCOL_ERROR),
    "a push": (BEGINNING + opened(1) + write_frame(PUSH_PROMISE, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "a reset of an idle stream": (BEGINNING + write_frame(RST_STREAM, 0, 3, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "a reset of 3 bytes": (BEGINNING + opened(1) + write_frame(RST_STREAM, 0, 1, b"abc"), ErrorCode.FRAME_SIZE_ERROR),
    "settings of a stream": (BEGINNING + write_frame(SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "settings of 5 bytes": (BEGINNING + write_frame(SETTINGS, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
    "an acknowledgement with settings": (
        BEGINNING + write_frame(SETTINGS, ACK, 0, bytes(6)),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "a window too wide": (BEGINNING + setting(4, 2**31), ErrorCode.FLOW_CONTROL_ERROR),
    "settings that make the window of a stream overflow": (
        BEGINNING + opened(1) + opened(3) + write_frame(WINDOW_UPDATE, 0, 1, (1).to_bytes(4)) + setting(4, MAX_WINDOW),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "a priority of no stream": (BEGINNING + write_frame(PRIORITY, 0, 0, b"abc"), ErrorCode.PROTOCOL_ERROR),
    "a frame size too small": (BEGINNING + setting(5, 100), ErrorCode.PROTOCOL_ERROR),
    "push of 2": (BEGINNING + setting(2, 2), ErrorCode.PROTOCOL_ERROR),
    "a ping of 7 bytes": (BEGINNING + write_frame(PING, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    "a ping of a stream": (BEGINNING + write_frame(PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "a goaway of a stream": (BEGINNING + write_frame(GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "a window opened by nothing": (BEGINNING + write_frame(WINDOW_UPDATE, 0, 0, NOTHING), ErrorCode.PROTOCOL_ERROR),
    "the window overflows": (BEGINNING + write_frame(WINDOW_UPDATE, 0, 0, WIDE), ErrorCode.FLOW_CONTROL_ERROR),
    "a window of 3 bytes": (BEGINNING + write_frame(WINDOW_UPDATE, 0, 0, b"abc"), ErrorCode.FRAME_SIZE_ERROR),
    "a continuation of nothing": (BEGINNING + write_frame(CONTINUATION, 4, 1, b""), ErrorCode.PROTOCOL_ERROR),
    "headers that are broken off": (
        BEGINNING + opened(1, flags=0) + write_frame(PING, 0, 0, bytes(8)),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "another stream within headers": (
        BEGINNING + opened(1, flags=0) + write_frame(CONTINUATION, END_HEADERS, 3, b""),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "headers without an end": (
        BEGINNING + opened(1, flags=0) + write_frame(CONTINUATION, 0, 1, PIECE) * 9,
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "continuations of nothing": (
        BEGINNING + opened(1, flags=0) + write_frame(CONTINUATION, 0, 1) * 20,
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a header bomb": (
        # One entry of 3,000 bytes in the table, then 1 byte for each time that it is meant.
        BEGINNING + write_frame(HEADERS, END_HEADERS, 1, b"\x40\x01x\x7f\xb9\x16" + bytes(3_000) + b"\xbe" * 1_000),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "headers that cannot be read": (
        BEGINNING + write_frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\x0f"),
        ErrorCode.COMPRESSION_ERROR,
    ),
    "an index of no header": (BEGINNING + write_frame(HEADERS, END_HEADERS, 1, b"\xfe"), ErrorCode.COMPRESSION_ERROR),
    "a number without an end": (
        BEGINNING + write_frame(HEADERS, END_HEADERS, 1, b"\xff" * 10_000),
        ErrorCode.COMPRESSION_ERROR,
    ),
    "headers too short for a priority": (
        BEGINNING + write_frame(HEADERS, END_HEADERS | 0x20, 1, b"abc"),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "a flood of pings": (
        BEGINNING + write_frame(PING, 0, 0, bytes(8)) * (MAX_IDLE_FRAMES + 1),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a flood of settings": (
        # Calls between them do not help: each may change the windows of 10,000 streams.
        BEGINNING + b"".join(opened(2 * number + 1) + setting(4, number) for number in range(MAX_SETTINGS)),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a flood of acknowledgements": (
        BEGINNING + write_frame(SETTINGS, ACK, 0) * (MAX_IDLE_FRAMES + 1),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a flood of empty data after the end": (
        BEGINNING + opened(1, "/t/other") + write_frame(DATA, 0, 1) * (MAX_IDLE_FRAMES + 1),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a flood of priorities": (
        BEGINNING + write_frame(PRIORITY, 0, 1, bytes(5)) * (MAX_IDLE_FRAMES + 1),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a flood of empty data": (
        BEGINNING + opened(1) + write_frame(DATA, 0, 1) * (MAX_IDLE_FRAMES + 1),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a flood of unknown frames": (
        BEGINNING + write_frame(99, 0, 0) * (MAX_IDLE_FRAMES + 1),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a flood of small windows": (
        BEGINNING + write_frame(WINDOW_UPDATE, 0, 0, (1).to_bytes(4)) * (MAX_IDLE_FRAMES + 1),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
}

STREAMS = {
    "a window opened by nothing": (opened(1) + write_frame(WINDOW_UPDATE, 0, 1, NOTHING), ErrorCode.PROTOCOL_ERROR),
    "a window that overflows": (opened(1) + write_frame(WINDOW_UPDATE, 0, 1, WIDE), ErrorCode.FLOW_CONTROL_ERROR),
    "data after the end": (
        # The window is closed, so that the answer, and with it the stream, waits.
        setting(4, 0) + opened(1) + write_frame(DATA, END_STREAM, 1, message(b"x")) + write_frame(DATA, 0, 1, b"x"),
        ErrorCode.STREAM_CLOSED,
    ),
    "headers again": (opened(1) + opened(1), ErrorCode.PROTOCOL_ERROR),
    "a priority of 4 bytes": (opened(1) + write_frame(PRIORITY, 0, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
}


@pytest.mark.parametrize("case", CONNECTIONS)
async def test_a_fault_ends_the_connection(world: World, case: str) -> None:
    sent, code = CONNECTIONS[case]
    async with connected(world[1], sent) as peer:
        assert await peer.goaway() == code
    # The server is there for others.
    async with connected(world[1], BEGINNING + opened(1) + write_frame(DATA, END_STREAM, 1, message(b"on"))) as other:
        assert (await other.next(DATA))[3] == message(b"on")


@pytest.mark.parametrize("case", STREAMS)
async def test_a_fault_of_a_stream_ends_that_stream_alone(world: World, case: str) -> None:
    sent, code = STREAMS[case]
    other = opened(3) + write_frame(WINDOW_UPDATE, 0, 3, (100).to_bytes(4))
    async with connected(world[1], BEGINNING + sent + other) as peer:
        assert (await peer.next(RST_STREAM))[2:] == (1, int(code).to_bytes(4))
        await peer.send(write_frame(DATA, END_STREAM, 3, message(b"on")))
        assert (await peer.next(DATA))[2:] == (3, message(b"on"))


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES - 5, 1, 0])
async def test_data_beyond_a_streams_window_ends_the_stream(world: World, size: int) -> None:
    # Messages that nobody takes, since their answers cannot leave: the window is not opened again.
    whole = message(bytes(size)) * (MAX_FRAME_BYTES // (size + 5))
    sent = setting(4, 0) + opened(1) + write_frame(DATA, 0, 1, whole) * (4 * STREAM_WINDOW // MAX_FRAME_BYTES)
    async with connected(world[1], BEGINNING + sent) as peer:
        assert (await peer.next(RST_STREAM))[2:] == (1, int(ErrorCode.FLOW_CONTROL_ERROR).to_bytes(4))


async def test_what_nobody_takes_of_one_stream_does_not_stop_another(world: World) -> None:
    async with connected(world[1], BEGINNING + setting(4, 0)) as peer:
        for stream in range(1, 2 * CONNECTION_WINDOW // STREAM_WINDOW, 2):
            whole = message(bytes(MAX_FRAME_BYTES - 5))
            await peer.send(opened(stream) + write_frame(DATA, 0, stream, whole) * (STREAM_WINDOW // MAX_FRAME_BYTES))
        last = 2 * CONNECTION_WINDOW // STREAM_WINDOW + 1
        await peer.send(opened(last) + write_frame(WINDOW_UPDATE, 0, last, (100).to_bytes(4)))
        await peer.send(write_frame(DATA, END_STREAM, last, message(b"on")))
        assert (await peer.next(DATA))[2:] == (last, message(b"on"))


async def test_calls_that_are_reset_at_once_leave_nothing(world: World) -> None:
    server, address = world
    pairs = b"".join(opened(stream) + write_frame(RST_STREAM, 0, stream, NOTHING) for stream in range(1, 100_000, 2))
    async with connected(address, BEGINNING) as peer:
        reading = asyncio.ensure_future(peer.next(PING))
        await peer.send(pairs + write_frame(PING, 0, 0, b"the end!"))
        assert (await reading)[3] == b"the end!"
        await peer.send(opened(100_001) + write_frame(DATA, END_STREAM, 100_001, message(b"on")))
        assert (await peer.next(DATA))[3] == message(b"on")
        await until(lambda: not server.calls)


async def test_calls_that_are_reset_and_whose_tasks_go_on_leave_no_room_for_more() -> None:
    gate = asyncio.Event()

    async def linger(_: GrpcCall) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await gate.wait()

    server = GrpcServer({ECHO: echo, "/t/linger": linger}, MAX_MESSAGE)
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address, connected(address) as peer:
        reading = asyncio.ensure_future(peer.next(RST_STREAM))
        numbers = range(1, 2 * MAX_STREAMS, 2)
        await peer.send(b"".join(opened(number, "/t/linger") for number in numbers))
        await until(lambda: server.calls == MAX_STREAMS)
        await peer.send(b"".join(write_frame(RST_STREAM, 0, number, NOTHING) for number in numbers))
        # The streams are over, their tasks are not.
        last = numbers[-1] + 2
        await peer.send(opened(last))
        assert (await reading)[2:] == (last, int(ErrorCode.REFUSED_STREAM).to_bytes(4))
        gate.set()
        await until(lambda: not server.calls)
        await peer.send(opened(last + 2) + write_frame(DATA, END_STREAM, last + 2, message(b"on")))
        assert (await peer.next(DATA))[3] == message(b"on")


async def test_who_reads_nothing_loses_the_connection(world: World) -> None:
    server, address = world
    asked = opened(1) + write_frame(DATA, 0, 1, message(b"x"))
    pings = write_frame(PING, 0, 0, bytes(8)) * 500
    async with connected(address, BEGINNING + asked) as peer:
        stream = 3
        while server.connections:
            # Each call keeps the pings from being a flood; no answer is ever read.
            await peer.send(opened(stream) + write_frame(RST_STREAM, 0, stream, NOTHING) + pings)
            stream += 2
            await asyncio.sleep(0)
    await until(lambda: not server.calls)


@pytest.mark.parametrize("seed", range(8))
async def test_random_bytes_end_the_connection_or_are_ignored(world: World, seed: int) -> None:
    noise = bytes((index * index * (seed + 3) + index * 7 + seed) % 251 for index in range(3_000))
    for head in (b"", PREFACE, BEGINNING, BEGINNING + opened(1)):
        async with connected(world[1], head + noise) as peer:
            assert await peer.goaway()


def test_the_table_has_each_code_that_ends_a_connection() -> None:
    assert {code for _, code in CONNECTIONS.values()} == {
        ErrorCode.PROTOCOL_ERROR,
        ErrorCode.FLOW_CONTROL_ERROR,
        ErrorCode.FRAME_SIZE_ERROR,
        ErrorCode.COMPRESSION_ERROR,
        ErrorCode.ENHANCE_YOUR_CALM,
    }
