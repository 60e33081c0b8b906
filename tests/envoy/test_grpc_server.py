"""Our gRPC server, asked by gRPC's own client, and by frames in any pieces."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.envoy.http2_peer import (
    BEGINNING,
    ECHO,
    MAX_MESSAGE,
    call_headers,
    connected,
    echo,
    echo_server,
    message,
    opened,
)
from tests.until import until
from tg_gateway.envoy.grpc_call import GrpcCall, GrpcFault, GrpcStatus, write_status
from tg_gateway.envoy.grpc_server import GrpcServer, serve_grpc
from tg_gateway.envoy.grpc_timeout import read_timeout
from tg_gateway.envoy.http2_connection import MAX_IDLE_FRAMES
from tg_gateway.envoy.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    write_frame,
)

OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


async def refuse(_: GrpcCall) -> None:
    """A method that ends with a status."""
    raise GrpcFault(GrpcStatus.NOT_FOUND, "50 % is nöt there\n" + "x" * 300)


async def crash(_: GrpcCall) -> None:
    """A method with a defect."""
    raise ZeroDivisionError


async def never(call: GrpcCall) -> None:
    """A method that does not answer."""
    await call.read()
    await asyncio.Event().wait()


@pytest.fixture
async def world() -> AsyncIterator[tuple[GrpcServer, grpc.aio.Channel]]:
    methods = {ECHO: echo, "/t/refuse": refuse, "/t/crash": crash, "/t/never": never}
    server = GrpcServer(methods, 33 * 1024 * 1024)
    async with (
        asyncio.timeout(60),
        serve_grpc(server, "127.0.0.1:0", 0) as address,
        grpc.aio.insecure_channel(address, options=OPTIONS) as channel,
    ):
        yield server, channel
        await until(lambda: not server.calls)


async def test_a_call_has_each_message_answered(world: tuple[GrpcServer, Any]) -> None:
    call = world[1].stream_stream(ECHO)()
    for body in (b"one", b"", bytes(100_000)):
        await call.write(body)
        assert await call.read() == body
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() == grpc.StatusCode.OK


async def test_a_message_of_32_mib_comes_and_goes(world: tuple[GrpcServer, Any]) -> None:
    body = bytes(range(256)) * 4096 * 32
    call = world[1].stream_stream(ECHO)(iter([body, b"on"]))
    assert [len(each) async for each in call] == [len(body), 2]


async def test_a_thousand_calls_at_once_are_all_answered(world: tuple[GrpcServer, Any]) -> None:
    async def ask(number: int) -> bool:
        body = number.to_bytes(4) * 1000
        return [each async for each in world[1].stream_stream(ECHO)(iter([body]))] == [body]

    assert all(await asyncio.gather(*map(ask, range(1000))))


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("/t/refuse", grpc.StatusCode.NOT_FOUND, "50 % is nöt there\nxxx"),
        ("/t/crash", grpc.StatusCode.UNKNOWN, "ZeroDivisionError"),
        ("/t/other", grpc.StatusCode.UNIMPLEMENTED, "no such method"),
    ],
)
async def test_an_error_is_told(world: tuple[GrpcServer, Any], path: str, code: grpc.StatusCode, text: str) -> None:
    call = world[1].unary_unary(path)(b"")
    assert await call.code() == code
    assert text in await call.details()


async def test_compressed_and_too_large_messages_are_refused(world: tuple[GrpcServer, Any]) -> None:
    call = world[1].unary_unary(ECHO)(bytes(10_000), compression=grpc.Compression.Gzip)
    assert await call.code() == grpc.StatusCode.UNIMPLEMENTED
    call = world[1].unary_unary(ECHO)(bytes(33 * 1024 * 1024 + 1))
    assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_deadline_and_a_caller_that_leaves_end_the_task(world: tuple[GrpcServer, Any]) -> None:
    server, channel = world
    assert await channel.unary_unary("/t/never")(b"", timeout=0.05).code() == grpc.StatusCode.DEADLINE_EXCEEDED
    call = channel.unary_unary("/t/never")(b"")
    await until(lambda: server.calls == 1)
    call.cancel()
    await until(lambda: not server.calls)


async def test_the_servers_own_deadline_is_told() -> None:
    server = GrpcServer({"/t/never": never}, MAX_MESSAGE)
    block = call_headers("/t/never", **{"grpc-timeout": "10m"})
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address, connected(address) as peer:
        await peer.send(write_frame(HEADERS, END_HEADERS | END_STREAM, 1, block))
        assert peer.fields(await peer.next(HEADERS))["grpc-status"] == "4"


@pytest.mark.parametrize(("value", "seconds"), [(b"2H", 7200), (b"5S", 5), (b"20m", 0.02), (b"x", None), (None, None)])
def test_timeouts(value: bytes | None, seconds: float | None) -> None:
    assert read_timeout(value) == seconds


@pytest.mark.parametrize("media_type", ["text/html", "application/grpc-web", "application/grpc-web+proto"])
async def test_what_is_no_grpc_is_told_by_http(media_type: str) -> None:
    block = call_headers(**{"content-type": media_type})
    async with asyncio.timeout(60), echo_server() as (_, address), connected(address) as peer:
        await peer.send(write_frame(HEADERS, END_HEADERS | END_STREAM, 1, block))
        assert peer.fields(await peer.next(HEADERS)) == {":status": "415"}


@pytest.mark.parametrize("media_type", ["application/grpc+proto", "application/grpc;charset=utf-8"])
async def test_all_names_of_grpc_are_known(media_type: str) -> None:
    block = call_headers(**{"content-type": media_type})
    async with asyncio.timeout(60), echo_server() as (_, address), connected(address) as peer:
        await peer.send(write_frame(HEADERS, END_HEADERS | END_STREAM, 1, block))
        assert peer.fields(await peer.next(HEADERS))["grpc-status"] == "0"


async def test_a_call_that_ends_before_its_caller_resets_the_rest() -> None:
    async with asyncio.timeout(60), echo_server() as (_, address), connected(address) as peer:
        await peer.send(opened(1, "/t/other"))
        assert peer.fields(await peer.next(HEADERS))["grpc-status"] == "12"
        assert (await peer.next(RST_STREAM))[2:] == (1, bytes(4))


async def test_a_request_that_ends_within_a_message_is_an_error() -> None:
    async with asyncio.timeout(60), echo_server() as (_, address), connected(address) as peer:
        await peer.send(opened(1) + write_frame(DATA, END_STREAM, 1, message(b"whole")[:-1]))
        assert peer.fields(await peer.next(HEADERS))["grpc-status"] == "13"


async def test_an_answer_waits_for_the_windows_of_stream_and_connection() -> None:
    body = bytes(100_000)
    async with asyncio.timeout(60), echo_server() as (_, address), connected(address) as peer:
        # 65,535 bytes is what a peer takes that has said nothing.
        pieces = [message(body)[at : at + 16_000] for at in range(0, len(body) + 5, 16_000)]
        await peer.send(opened(1) + b"".join(write_frame(DATA, 0, 1, piece) for piece in pieces))
        await peer.send(write_frame(DATA, END_STREAM, 1))
        got = bytearray()
        while len(got) < 65_535:
            got += (await peer.next(DATA))[3]
        assert len(got) == 65_535
        await peer.send(write_frame(WINDOW_UPDATE, 0, 1, (50_000).to_bytes(4)) + write_frame(PING, 0, 0, bytes(8)))
        # The stream's window is open, the connection's is not: nothing comes before the answer to the ping.
        assert (await peer.frame() or (None,))[0] == PING
        await peer.send(write_frame(WINDOW_UPDATE, 0, 0, (50_000).to_bytes(4)))
        while len(got) < len(body) + 5:
            got += (await peer.next(DATA))[3]
        assert bytes(got) == message(body)
        assert peer.fields(await peer.next(HEADERS))["grpc-status"] == "0"


async def test_a_server_that_leaves_serves_what_was_on_its_way_and_then_closes() -> None:
    server = GrpcServer({ECHO: echo}, MAX_MESSAGE)
    async with asyncio.timeout(60):
        async with serve_grpc(server, "127.0.0.1:0", 30) as address, connected(address) as peer:
            await peer.send(opened(1))
            await peer.next(SETTINGS)
            await until(lambda: server.calls == 1)
            leaving = asyncio.ensure_future(server.stop(30))
            while (frame := await peer.frame()) is not None and frame[0] != GOAWAY:
                pass
            assert frame is not None
            assert frame[3][:4] == b"\x7f\xff\xff\xff"
            ping = await peer.next(PING)
            # This one was on its way.
            await peer.send(opened(3) + write_frame(PING, 1, 0, ping[3]))
            last = await peer.frame()
            assert last is not None
            assert (last[0], last[3]) == (GOAWAY, (3).to_bytes(4) + bytes(4))
            # And this one comes too late.
            await peer.send(opened(5))
            assert (await peer.next(RST_STREAM))[2:] == (5, int(ErrorCode.REFUSED_STREAM).to_bytes(4))
            for stream in (1, 3):
                await peer.send(write_frame(DATA, END_STREAM, stream, message(b"x")))
                assert (await peer.next(DATA))[2:] == (stream, message(b"x"))
            while await peer.frame() is not None:
                pass
            await leaving


async def test_connections_that_have_not_asked_yet_are_told_to_ask_elsewhere() -> None:
    server = GrpcServer({ECHO: echo}, MAX_MESSAGE)
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address, connected(address) as peer:
        await peer.send(opened(1))
        await until(lambda: server.calls == 1)
        async with connected(address, b"") as silent:
            await until(lambda: len(server.connections) == 2)
            leaving = asyncio.ensure_future(server.stop(60))
            assert await silent.goaway() == ErrorCode.NO_ERROR
        async with connected(address, b"") as late:
            assert await late.goaway() == ErrorCode.NO_ERROR
        await peer.send(write_frame(RST_STREAM, 0, 1, bytes(4)) + write_frame(PING, 1, 0, b"draining"))
        await leaving


async def test_calls_that_do_not_end_are_told_that_the_server_leaves() -> None:
    server = GrpcServer({ECHO: echo}, MAX_MESSAGE)
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address, connected(address) as peer:
        await peer.send(opened(1))
        await until(lambda: server.calls == 1)
        await server.stop(0)
        told: dict[str, str] = {}
        while (frame := await peer.frame()) is not None:
            told |= peer.fields(frame) if frame[0] == HEADERS else {}
        assert told["grpc-status"] == "14"


async def test_a_peer_that_gives_no_sign_of_life_is_asked_for_one_and_then_left() -> None:
    async with asyncio.timeout(60), echo_server(keepalive=0.05) as (server, address), connected(address) as peer:
        await peer.send(opened(1))
        while (frame := await peer.frame()) is not None and frame[:2] != (PING, 0):
            pass
        assert frame is not None
        while await peer.frame() is not None:
            pass
        await until(lambda: not server.calls)


async def test_what_was_on_its_way_to_calls_that_ended_all_at_once_ends_no_other() -> None:
    count, full = 2_000, asyncio.Event()

    async def refuse_all(_: GrpcCall) -> None:
        await full.wait()
        raise GrpcFault(GrpcStatus.UNAVAILABLE, "no server answers")

    server = GrpcServer({ECHO: echo, "/t/refuse": refuse_all}, MAX_MESSAGE)
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address, connected(address) as peer:
        refused = range(3, 2 * count + 3, 2)
        await peer.send(opened(1) + b"".join(opened(stream, "/t/refuse") for stream in refused))
        await until(lambda: server.calls == count + 1)
        full.set()
        for _ in refused:
            await peer.next(HEADERS)
        late = (
            write_frame(DATA, 0, stream, b"x") * 20
            + write_frame(WINDOW_UPDATE, 0, stream, (1).to_bytes(4))
            + write_frame(DATA, END_STREAM, stream)
            + write_frame(RST_STREAM, 0, stream, bytes(4))
            for stream in refused
        )
        await peer.send(b"".join(late) + write_frame(DATA, END_STREAM, 1, message(b"on")))
        assert (await peer.next(DATA))[2:] == (1, message(b"on"))


async def test_answers_to_a_caller_that_is_gone_log_nothing(caplog: pytest.LogCaptureFixture) -> None:
    count, full = 50, asyncio.Event()

    async def wait(_: GrpcCall) -> None:
        await full.wait()

    server = GrpcServer({"/t/wait": wait}, MAX_MESSAGE)
    async with asyncio.timeout(60), serve_grpc(server, "127.0.0.1:0", 0) as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))) as caller:
            caller.sendall(BEGINNING + b"".join(opened(2 * number + 1, "/t/wait") for number in range(count)))
            await until(lambda: server.calls == count)
            # Closed this way, the next write of the server fails.
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        full.set()
        await until(lambda: not server.connections)
    assert not caplog.records


@pytest.mark.parametrize(("listen", "taken"), [("[::]", ("127.0.0.1", "[::1]")), ("[::1]", ("[::1]",))])
async def test_where_a_server_listens(listen: str, taken: tuple[str, ...]) -> None:
    first, second = (GrpcServer({ECHO: echo}, MAX_MESSAGE) for _ in range(2))
    if not socket.has_dualstack_ipv6():
        with pytest.raises(OSError, match=r"(?i)address"):
            await serve_grpc(first, f"{listen}:0", 0).__aenter__()
        return
    async with asyncio.timeout(60), serve_grpc(first, f"{listen}:0", 0) as address:
        host, _, port = address.rpartition(":")
        assert host == listen
        # A second process would listen there too.
        async with serve_grpc(second, address, 0) as again:
            assert again == address
            for each in ("127.0.0.1", "[::1]"):
                async with grpc.aio.insecure_channel(f"{each}:{port}") as channel:
                    ask: Any = channel.unary_unary(ECHO)
                    call = ask(b"on")
                    if each in taken:
                        assert await call == b"on"
                    else:
                        assert await call.code() == grpc.StatusCode.UNAVAILABLE


async def test_a_server_calms_its_connections_while_they_live() -> None:
    pings = write_frame(PING, 0, 0, b"mine now") * (MAX_IDLE_FRAMES // 2 - 100)
    async with asyncio.timeout(60), echo_server(keepalive=0.5) as (_, address), connected(address) as peer:
        for _ in range(3):
            await peer.send(pings)
            # That the server asks for a sign of life says that it has calmed down.
            while (await peer.next(PING))[1:] != (0, 0, b"keepaliv"):
                pass
            await peer.send(write_frame(PING, 1, 0, b"keepaliv"))


@pytest.mark.parametrize("text", ["x" * 500, "é" * 500, "%" * 500, "ab\n" * 100])
def test_a_long_text_of_an_error_is_cut_between_characters(text: str) -> None:
    block = write_status(GrpcStatus.INTERNAL, text)
    told = block.rpartition(b"grpc-message")[2]
    assert told[0] == len(told) - 1 <= 120
    assert b"%" not in told[-2:]
