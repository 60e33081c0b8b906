"""The connections to a provider, against a server that means harm: bytes by hand, from a thread of its own.

On both loops, since their ways to read differ: uvloop's is the one of a process, asyncio's that of all other tests.
"""

import asyncio
import gzip
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import certifi
import httpx
import pytest
import uvloop
from typing_extensions import override
from yarl import URL

from tg_base.llm import PreparedConnection, share_tls
from tg_base.llm.http.pool import READ_BYTES, HttpPool, HttpTarget, _Handler
from tg_schema import TgError
from tg_schema.errors import IncompleteStream, ProtocolError, Unavailable

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@contextmanager
def saying(head: bytes, forever: bytes = b"", times: int = -1, *, stays: bool = False) -> Iterator[URL]:
    """A server that answers a connection with `head` and then `forever`; where it `stays`, each request of it."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    while connection.recv(65536):
                        connection.sendall(head)
                        if not stays:
                            break
                    left = times
                    while forever and left:
                        connection.sendall(forever)
                        left -= 1

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield URL(f"http://127.0.0.1:{listening.getsockname()[1]}/v1")
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


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


def test_an_answer_is_read(run: Runner) -> None:
    with saying(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n") as url:
        assert run(body_of(url)) == (200, b"hello")


def test_a_few_interim_responses_are_passed_over(run: Runner) -> None:
    with saying(b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n") as url:
        assert run(body_of(url)) == (200, b"hello")


@pytest.mark.parametrize(
    ("head", "forever", "kinds"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, {ProtocolError}),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * 100, {ProtocolError}),
        (OK, b"X-One: more\r\n" * 100, {Unavailable}),  # aiohttp's bound on the number of headers comes first
        (OK + b"X-One: ", b"x" * 1000, {Unavailable}),
        (b"", b"x" * 1000, {Unavailable}),
        (OK + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(bytes(10_000_000)), {ProtocolError}),
        (OK + b"Content-Encoding: br\r\n\r\n", b"x" * 1000, {ProtocolError}),
        (CHUNKED + b"5\r\nhello\r\n0\r\n", b"X-One: more\r\n" * 100, {IncompleteStream, Unavailable}),
        (CHUNKED + b"5\r\nhello\r\n-5\r\n", b"", {IncompleteStream, Unavailable}),
    ],
    ids=["continue", "hints", "headers", "header", "status", "gzip", "br", "trailers", "nonsense"],
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


def test_a_connection_is_used_again_after_a_whole_answer_and_bounds_the_next_head_too(run: Runner) -> None:
    ports = []

    async def ask_twice(url: URL) -> None:
        pool = HttpPool()
        for _ in range(2):
            answer = await pool.ask("GET", str(url), (), None)
            connection = answer._response.connection
            ports.append(connection and connection.transport and connection.transport.get_extra_info("sockname"))
            protocol = connection and connection.protocol
            assert isinstance(protocol, _Handler)  # aiohttp has no public place for it
            while await answer.read():
                pass
            answer.close()
        await pool.aclose()

    with saying(OK + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000, stays=True) as url:
        run(ask_twice(url))
    assert ports[0] == ports[1]


def test_what_requests_have_in_common_is_made_once() -> None:
    """A connection whose SDK prepares its requests: what is the same for all of them is not made for each."""
    made = []

    class Pool(HttpPool):
        @override
        def target(self, url: str, headers: Iterable[tuple[str, str]]) -> HttpTarget:
            made.append(url)
            return super().target(url, headers)

    async def ask_often(url: URL) -> None:
        async def prepare(method: str) -> httpx.Request:
            return httpx.Request(method, str(url), headers={"X-Key": "k"})

        connection = PreparedConnection(prepare, Pool())
        for _ in range(3):
            answer = await connection.post(b"{}")
            assert await answer.read() == b"hello"
            answer.close()
        await connection.aclose()

    with saying(OK + b"Content-Length: 5\r\n\r\nhello", stays=True) as url:
        asyncio.run(ask_often(url))
        assert made == [str(url)]


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

    with saying(OK + b"Content-Length: 5\r\n\r\nhello", stays=True) as url:
        run(ask_both(url))


def test_a_tls_context_is_shared_until_other_certificates_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = share_tls(httpx.create_ssl_context)
    assert share_tls(httpx.create_ssl_context) is made
    file = tmp_path / "authorities.pem"
    file.write_bytes(Path(certifi.where()).read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    other = share_tls(httpx.create_ssl_context)
    assert other is not made
    os.utime(file, (1, 1))
    assert share_tls(httpx.create_ssl_context) is not other
