"""The connections to a provider, against a server that means harm: bytes by hand, from a thread of its own.

On both loops, since their ways to read differ: uvloop's is the one of a process, asyncio's that of all other tests.
"""

import asyncio
import fcntl
import gzip
import socket
import termios
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import pytest
import uvloop
from typing_extensions import override
from yarl import URL

from tests.fakes.stream_server import stream_server
from tests.fakes.threaded_server import receive, saying, serving
from tests.until import until
from tg_base.llm import Method
from tg_base.llm.http.connections import READ_BYTES
from tg_base.llm.http.pool import HttpPool
from tg_schema import TgError
from tg_schema.errors import IncompleteStream, ProtocolError, Unavailable

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


Runner = Callable[[Coroutine[Any, Any, Any]], Any]
RUNNERS: dict[str, Runner] = {"asyncio": asyncio.run, "uvloop": uvloop.run}


@pytest.fixture(params=RUNNERS)
def run(request: pytest.FixtureRequest) -> Runner:
    return RUNNERS[request.param]


async def body_of(url: URL) -> tuple[int, bytes]:
    pool, body = HttpPool(), b""
    try:
        answer = await pool.ask("POST", str(url), (("X-Key", "k"),), b"{}")
        try:
            while part := await answer.read():
                body += part
        finally:
            answer.close()
    finally:
        await pool.aclose()
    return answer.status, body


def test_a_few_interim_responses_are_passed_over(run: Runner) -> None:
    with saying(b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n") as url:
        assert run(body_of(url)) == (200, b"hello")


@pytest.mark.parametrize(
    ("head", "forever", "kinds"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, {ProtocolError}),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * 100, {ProtocolError}),
        (OK, b"X-One: more\r\n" * 100, {ProtocolError}),
        (OK + b"X-One: ", b"x" * 1000, {ProtocolError}),
        (b"", b"x" * 1000, {Unavailable}),
        (OK + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(bytes(10_000_000)), {ProtocolError}),
        (OK + b"Content-Encoding: br\r\n\r\n", b"x" * 1000, {ProtocolError}),
        (CHUNKED + b"5\r\nhello\r\n0\r\n", b"X-One: more\r\n" * 100, {IncompleteStream, Unavailable}),
        (CHUNKED + b"5\r\nhello\r\n-5\r\n", b"", {IncompleteStream, Unavailable}),
        (CHUNKED + b"5\r\nhello!!", b"5\r\nhello\r\n", {IncompleteStream}),
    ],
    ids=["continue", "hints", "headers", "header", "status", "gzip", "br", "trailers", "nonsense", "longer"],
)
def test_what_never_ends_is_left(run: Runner, head: bytes, forever: bytes, kinds: set[type[TgError]]) -> None:
    """Whether head and body come in one read decides which of two errors a broken body is."""
    with saying(head, forever) as url, pytest.raises(TgError) as failed:
        run(body_of(url))
    assert type(failed.value) in kinds


def test_an_error_that_is_compressed_is_not_inflated(run: Runner) -> None:
    head = b"HTTP/1.1 503 No\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"
    with saying(head + gzip.compress(bytes(1000))) as url:
        status, body = run(body_of(url))
    assert (status, len(body)) == (503, len(gzip.compress(bytes(1000))))


def test_the_loop_has_its_turn_between_small_chunks(run: Runner) -> None:
    """Chunks of one byte are the most work for the fewest bytes."""
    block, times, ticks = 4096, 100, 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def read(url: URL) -> None:
        neighbour = asyncio.create_task(tick())
        try:
            await body_of(url)
        finally:
            neighbour.cancel()

    with saying(CHUNKED, b"1\r\n:\r\n" * block, times) as url, pytest.raises(IncompleteStream):
        run(read(url))
    assert ticks >= 6 * block * times / (4 * READ_BYTES)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_connection_is_used_again_after_a_whole_answer_and_bounds_the_next_head_too(
    run: Runner, method: Method
) -> None:
    def converse(connection: socket.socket) -> None:
        receive(connection)
        connection.sendall(OK + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000)
        while receive(connection):
            while True:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    async def ask_twice(url: URL) -> None:
        pool, body = HttpPool(), b"{}" if method == "POST" else None
        # The server serves one connection at a time: a second one would never be answered.
        async with asyncio.timeout(20):
            answer = await pool.ask(method, str(url), (), body)
            size = 0
            while part := await answer.read():
                size += len(part)
            assert size == 100_000
            answer.close()
            with pytest.raises(ProtocolError, match="interim responses"):
                await pool.ask(method, str(url), (), body)
        await pool.aclose()

    with serving(converse) as url:
        run(ask_twice(url))


@pytest.mark.parametrize("chunk", [b":", b":" * 32])
def test_many_small_chunks_are_not_read_ahead(run: Runner, chunk: bytes) -> None:
    """Those of one read are one object."""
    chunks = 100_000 // len(chunk)

    async def read_late(url: URL) -> int:
        pool = HttpPool()
        answer = await pool.ask("POST", str(url), (), b"{}")
        most = size = 0
        try:
            while part := await answer.read():
                # What has come while nobody read is one part of the answer.
                most, size = max(most, len(part)), size + len(part)
                for _ in range(20):
                    await asyncio.sleep(0)
        finally:
            answer.close()
            await pool.aclose()
        assert size == chunks * len(chunk) + 5
        return most

    end = b"5;a=b\r\nhello\r\n0\r\n\r\n"
    with saying(CHUNKED + b"%x\r\n%s\r\n" % (len(chunk), chunk) * chunks + end) as url:
        assert run(read_late(url)) <= 3 * READ_BYTES


def test_pools_share_their_connections_until_the_last_of_them_is_closed(run: Runner) -> None:
    async def ask(pool: HttpPool, url: URL) -> None:
        answer = await pool.ask("POST", str(url), (), b"{}")
        assert await answer.read() == b"hello"
        answer.close()

    async def ask_both(url: URL) -> None:
        first, second = HttpPool(), HttpPool()
        # The server serves one connection at a time: a further one would never be answered.
        async with asyncio.timeout(20):
            for pool in (first, second, first):
                await ask(pool, url)
            await first.aclose()
            await ask(second, url)
            for pool in (first, second):
                await pool.aclose()
            # That of both has been closed, and the server has turned to the next.
            third = HttpPool()
            await ask(third, url)
            await third.aclose()

    with saying(HELLO, stays=True) as url:
        run(ask_both(url))


@pytest.mark.parametrize("at_once", [True, False], ids=["with the answer", "behind it"])
def test_what_comes_behind_an_answer_is_nobodys(run: Runner, at_once: bool) -> None:
    """The second answer is in the same read, or already received when the next request takes a connection."""
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            await reader.readuntil(b"}")
            asked += 1
            writer.write(HELLO.replace(b"hello", b"own %d" % asked) + (leftover if at_once else b""))

    async def ask() -> None:
        async with stream_server(serve) as port:
            url, pool = f"http://127.0.0.1:{port}/v1", HttpPool()
            target = pool.target(url, ())
            for number in (1, 2):
                answer = await pool.send("POST", target, b"{}")
                assert await answer.read() == b"own %d" % number
                answer.close()
            await pool.aclose()

    leftover = HELLO.replace(b"hello", b"other")
    if at_once:
        run(ask())
    else:
        with leaving(leftover) as (url, left):
            run(ask_behind(url, left))


@contextmanager
def leaving(leftover: bytes) -> Iterator[tuple[URL, threading.Event]]:
    """A server that sends more behind its first answer once the event is set, and answers on a second connection."""
    go, open_still = threading.Event(), ExitStack()

    def begin(connection: socket.socket) -> None:
        # Its end would tell the client as much as what is left behind the answer.
        open_still.enter_context(connection.dup())
        connection.sendall(HELLO)
        go.wait(20)
        connection.sendall(leftover)
        # Until the client's system has acknowledged it.
        while any(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))):
            pass
        go.clear()

    answers = iter((begin, lambda connection: connection.sendall(HELLO.replace(b"hello", b"own 2"))))

    def converse(connection: socket.socket) -> None:
        if receive(connection):
            next(answers)(connection)

    with open_still, serving(converse) as url:
        yield url, go


async def ask_behind(url: URL, go: threading.Event) -> None:
    pool = HttpPool()
    target = pool.target(str(url), ())
    answer = await pool.send("POST", target, b"{}")
    assert await answer.read() == b"hello"
    answer.close()
    go.set()
    # The loop stands still, so that only the system has received it.
    while go.is_set():
        pass
    answer = await pool.send("POST", target, b"{}")
    assert await answer.read() == b"own 2"
    answer.close()
    await pool.aclose()


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("headers", [b"Upgrade: x\r\nConnection: Upgrade\r\n", b""])
def test_an_upgrade_is_an_error(run: Runner, method: Method, headers: bytes) -> None:
    async def ask(url: URL) -> None:
        pool = HttpPool()
        async with asyncio.timeout(20):
            # The server serves one connection at a time, so the second is only served when the first was closed.
            for _ in range(2):
                with pytest.raises(ProtocolError, match="switched"):
                    await pool.ask(method, str(url), (), b"{}" if method == "POST" else None)
        await pool.aclose()

    with saying(b"HTTP/1.1 101 Switching Protocols\r\n" + headers + b"\r\n", stays=True) as url:
        run(ask(url))


def test_a_broken_chunk_is_told_at_once(run: Runner) -> None:
    """In a read of its own, when somebody waits for more."""
    broken = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(CHUNKED + b"5\r\nhello\r\n")
        await broken.wait()
        writer.write(b"zz\r\n")
        await reader.read()

    async def ask() -> None:
        async with stream_server(serve) as port:
            url, pool = f"http://127.0.0.1:{port}/v1", HttpPool()
            answer = await pool.ask("POST", url, (), b"{}")
            assert await answer.read() == b"hello"
            broken.set()
            async with asyncio.timeout(20):
                with pytest.raises(IncompleteStream):
                    await answer.read()
            answer.close()
            await pool.aclose()

    run(ask())


def test_a_good_answer_that_comes_early_does_not_stop_its_request(run: Runner) -> None:
    """The whole request is sent after its answer's head has come, and its connection is used again."""
    body, early, received = b"[%s]" % (b" " * 2**24), threading.Event(), list[int]()

    def converse(connection: socket.socket) -> None:
        received.append(0)
        while connection.recv(1):
            connection.sendall(CHUNKED)
            assert early.wait(20)
            early.clear()
            while not (part := connection.recv(2**20)).endswith(b"]"):
                if not part:
                    return
            received[-1] += 1
            connection.sendall(b"5\r\nhello\r\n0\r\n\r\n")

    async def ask_twice(url: URL) -> None:
        pool = HttpPool()
        try:
            async with asyncio.timeout(10):
                for _ in range(2):
                    answer = await pool.ask("POST", str(url), (), body)
                    early.set()
                    assert await answer.read() == b"hello"
                    assert await answer.read() == b""
        finally:
            await pool.aclose()

    with serving(converse) as url:
        run(ask_twice(url))
    assert received == [2]


def test_an_answer_without_an_end_is_whole_only_when_the_server_ends_it(run: Runner) -> None:
    async def read_and_close(url: URL) -> None:
        pool = HttpPool()
        answer = await pool.ask("POST", str(url), (), b"{}")
        assert await answer.read() == b"hello"
        rest = answer.read()
        await pool.aclose()
        with pytest.raises(IncompleteStream):
            await rest

    with saying(OK + b"\r\nhello", stays=True) as url:
        run(read_and_close(url))
    with saying(OK + b"\r\nhello") as url:
        assert run(body_of(url)) == (200, b"hello")


class _Helloing(asyncio.Protocol):
    """Answers each request; `there` are the connections that are open."""

    there: ClassVar[set[object]] = set()

    @override
    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.there.add(self)

    @override
    def data_received(self, data: bytes) -> None:
        self._transport.write(HELLO)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.there.discard(self)


def test_a_connection_is_kept_for_the_next_one_when_its_asker_has_the_answer(run: Runner) -> None:
    async def ask_many(pool: HttpPool, url: str) -> None:
        for _ in range(50):
            assert await (await pool.ask("POST", url, (), b"{}")).read() == b"hello"

    async def ask_side_by_side() -> None:
        pool = HttpPool()
        async with await asyncio.get_running_loop().create_server(_Helloing, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            try:
                await asyncio.wait_for(asyncio.gather(*(ask_many(pool, url) for _ in range(5))), 10)
            finally:
                await pool.aclose()
                await until(lambda: not _Helloing.there)

    run(ask_side_by_side())
