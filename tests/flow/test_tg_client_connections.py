"""The SDK's connections: when they are used again, what their heads may say, and TLS."""

import asyncio
import gc
import ssl
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.gateway_wire import END, EVENTS, bytes_of, chunk, gateway_wire
from tests.fakes.loopback_tls import loopback_tls
from tests.fakes.stream_server import stream_server
from tg_client import TgClient
from tg_client.transport.errors import WireError
from tg_client.transport.http_connection import HttpConnections
from tg_schema.errors import BadRequest, IncompleteStream, ProtocolError, Unavailable

LONG_HEAD_BYTES = 128 * 1024
LAST = chunk(b'data: {"response":"two","end_of_stream":true}\n\n')


@asynccontextmanager
async def staying(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, list[int]]]:
    """A server that answers each request of a connection alike; its URL, and the requests of each connection."""
    counts: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(counts)
        counts.append(0)
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(size.partition(b":")[2]))
            counts[number] += 1
            writer.write(answer)

    async with stream_server(serve, ssl=tls) as port:
        yield f"http://127.0.0.1:{port}/", counts


async def ask(client: TgClient) -> list[str | None]:
    async with client.flow().text_completion_stream("s", "p") as chunks:
        return [record.response async for record in chunks]


async def test_a_connection_is_used_again_after_a_whole_answer() -> None:
    async with staying(EVENTS + LAST + END) as (url, counts), TgClient(url) as client:
        assert [await ask(client) for _ in range(3)] == [["two"]] * 3
    assert counts == [3]


async def test_a_response_that_is_closed_twice_gives_its_connection_back_once() -> None:
    async with (
        staying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as (url, counts),
        aclosing(HttpConnections(url, {})) as connections,
    ):
        first = await connections.ask("POST", url, {}, b"{}")
        assert [await first.read(), await first.read()] == [b"ok", b""]
        await first.close()
        await first.close()
        pair = [await connections.ask("POST", url, {}, b"{}") for _ in range(2)]
        assert [await response.read() for response in pair] == [b"ok", b"ok"]
        assert not await first.read()
    assert counts == [2, 1]


async def test_a_connection_that_opens_while_its_client_closes_asks_nothing() -> None:
    async with staying(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (url, counts):
        connections = HttpConnections(url, {})
        asking = asyncio.create_task(connections.ask("POST", url, {}, b"{}"))
        # Its first wait is for the socket.
        await asyncio.sleep(0)
        await connections.aclose()
        with pytest.raises(WireError):
            await asking
    assert not any(counts)


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("call", ["ask", "read", "close"])
async def test_who_is_cancelled_while_it_closes_dead_connections_leaves_none_open(call: str, turns: int) -> None:
    leave, left = asyncio.Event(), asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await leave.wait()
        writer.close()
        await writer.wait_closed()
        left.release()

    gc.collect()
    with warnings.catch_warnings(record=True) as unclosed:
        warnings.simplefilter("always", ResourceWarning)
        async with stream_server(serve) as port:
            await cancel_among_dead_connections(f"http://127.0.0.1:{port}/", call, turns, leave, left)
        gc.collect()
    assert not unclosed


async def cancel_among_dead_connections(
    url: str, call: str, turns: int, leave: asyncio.Event, left: asyncio.Semaphore
) -> None:
    """Cancel a call after some turns of the loop, while all idle connections were closed by the server."""
    connections = HttpConnections(url, {})
    connections.bind()
    *early, last = [await connections.ask("POST", url, {}, b"{}") for _ in range(20)]
    for response in early:
        assert [await response.read(), await response.read()] == [b"ok", b""]
        await response.close()
    assert await last.read() == b"ok"
    leave.set()
    for _ in range(20):
        await left.acquire()
    calls: dict[str, Callable[[], Coroutine[object, object, object]]]
    calls = {"ask": partial(connections.ask, "POST", url, {}, b"{}"), "read": last.read, "close": last.close}
    task = asyncio.create_task(calls[call]())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await connections.aclose()


@pytest.mark.parametrize("url", ["http://a\0b/", "http://localhost:1/\udcff/", "http://h\udcff/"])
async def test_a_url_that_can_be_nobodys(url: str) -> None:
    async with TgClient(url) as client:
        with pytest.raises(BadRequest, match="the gateway's URL must look like"):
            await ask(client)


async def test_streams_side_by_side_have_a_connection_each() -> None:
    async with staying(EVENTS + LAST + END) as (url, counts), TgClient(url) as client:
        assert await asyncio.gather(*(ask(client) for _ in range(150))) == [["two"]] * 150
    assert sorted(counts) == [1] * 150


async def test_a_connection_that_is_to_close_or_was_left_is_not_used_again() -> None:
    closing = EVENTS.replace(b"Transfer", b"Connection: close\r\nTransfer")
    async with staying(closing + LAST + END) as (url, counts), TgClient(url) as client:
        assert [await ask(client) for _ in range(2)] == [["two"]] * 2
    assert counts == [1, 1]
    async with staying(EVENTS + chunk(b": alive\n\n")) as (url, counts), TgClient(url) as client:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ask(client), 0.1)
    assert counts == [1, 1]


async def test_closing_the_client_ends_who_still_reads() -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await over.wait()

    async with gateway_wire(answer) as wire:
        async with TgClient(wire.url) as client:
            reading = asyncio.create_task(ask(client))
            await asked.wait()
        with pytest.raises((IncompleteStream, Unavailable)):
            await asyncio.wait_for(reading, 5)
        over.set()


async def test_interim_responses_are_passed_over() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * 3
    async with gateway_wire(bytes_of(interim, EVENTS + LAST, END)) as wire, TgClient(wire.url) as client:
        assert await ask(client) == ["two"]


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * LONG_HEAD_BYTES,
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
    ],
    ids=[
        "endless",
        "no header",
        "two lengths",
        "version",
        "long status",
        "low status",
        "switching",
        "compressed",
    ],
)
async def test_a_head_that_is_none(head: bytes) -> None:
    async with gateway_wire(bytes_of(head)) as wire, TgClient(wire.url) as client:
        with pytest.raises(ProtocolError, match=r"does not speak HTTP|compresses its answers|is not a record"):
            await ask(client)


async def test_tls_asks_for_a_certificate_of_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tls, certificate = loopback_tls(tmp_path)
    async with staying(EVENTS + LAST + END, tls) as (plain, counts):
        url = plain.replace("http:", "https:")
        async with TgClient(url, retries=0) as client:
            with pytest.raises(Unavailable, match="the TLS certificate of https://127"):
                await ask(client)
        assert not any(counts)
        # OpenSSL's variable for further trusted certificates.
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with TgClient(url) as client:
            assert [await ask(client) for _ in range(2)] == [["two"]] * 2
    assert [count for count in counts if count] == [2]
