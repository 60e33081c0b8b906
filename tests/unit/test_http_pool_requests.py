"""Requests to a provider, as the pool writes them: the same bytes as aiohttp's, over checked TLS."""

import asyncio
import os
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import certifi
import httpx
import msgspec
import pytest
from typing_extensions import override
from yarl import URL

from tests.fakes.loopback_tls import loopback_tls
from tests.fakes.threaded_server import receive, saying, serving
from tests.unit.test_http_pool import CHUNKED, HELLO, RUNNERS, Runner
from tg_base.llm import PreparedConnection, share_tls
from tg_base.llm.http.pool import HttpPool, HttpTarget
from tg_schema.errors import Unavailable


async def post_both_ways(url: URL, headers: Iterable[tuple[str, str]], pool: HttpPool) -> None:
    """As a request with a common part, and as one that aiohttp writes."""
    target = pool.target(str(url), headers)
    assert target.post is not None
    for each in (target, msgspec.structs.replace(target, post=None)):
        answer = await pool.send("POST", each, b'{"a":"\xc3\xa9"}')
        assert await answer.read() == b"hello"
        answer.close()
    await pool.aclose()


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("Content-Type", "application/json"), ("Authorization", "Bearer k"), ("Content-Length", "999")),
        (("User-Agent", "SDK/1"), ("Accept", "text/event-stream")),
        (("X-Name", "caf\u00e9"), ("X-Empty", "")),
    ],
)
def test_a_request_is_written_as_aiohttp_writes_it(headers: Iterable[tuple[str, str]]) -> None:
    heads: list[bytes] = []

    def converse(connection: socket.socket) -> None:
        while head := receive(connection):
            heads.append(head)
            connection.sendall(HELLO)

    with serving(converse) as url:
        asyncio.run(post_both_ways(url / "chat" % {"api-version": "2024-10-21"}, headers, HttpPool()))
    ours, theirs = heads
    assert sorted(ours.split(b"\r\n")) == sorted(theirs.split(b"\r\n"))


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
def test_tls_is_checked_both_ways(run: Runner, tmp_path: Path) -> None:
    """By aiohttp's session and beside it."""
    tls, certificate = loopback_tls(tmp_path)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"}")
                writer.write(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
        url = URL(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        await post_both_ways(url, (), HttpPool(ssl.create_default_context(cafile=certificate)))
        pool = HttpPool(ssl.create_default_context())
        with pytest.raises(Unavailable):
            await pool.ask("POST", str(url), (), b"{}")
        await pool.aclose()
        server.close()

    run(ask())


@pytest.mark.parametrize(
    ("place", "header"),
    [
        ("http://me:secret@127.0.0.1/v1", ("X-Key", "k")),
        ("http://127.0.0.1/v1", ("X-Key", "k\r\nX-More: 1")),
        ("http://127.0.0.1/v1", ("X-Key\0", "k")),
        ("http://127.0.0.1/v1", ("Expect", "100-continue")),
    ],
)
def test_an_unusual_request_is_left_to_aiohttp(place: str, header: tuple[str, str]) -> None:
    async def prepare() -> HttpTarget:
        pool = HttpPool()
        target = pool.target(place, (header,))
        await pool.aclose()
        return target

    assert asyncio.run(prepare()).post is None


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

    with saying(HELLO, stays=True) as url:
        asyncio.run(ask_often(url))
        assert made == [str(url)]


def test_no_key_is_shown_and_a_closed_pool_stays_closed() -> None:
    async def ask() -> None:
        pool = HttpPool()
        target = pool.target("http://127.0.0.1/v1?key=secret", (("Authorization", "Bearer secret"),))
        assert repr(target) == "HttpTarget(http://127.0.0.1/v1)"
        assert repr(target.post) == "PreparedPost(http://127.0.0.1/v1)"
        await pool.aclose()
        with pytest.raises(Unavailable, match="closed"):
            await pool.send("POST", target, b"{}")
        with pytest.raises(Unavailable, match="closed"):
            pool.target("http://127.0.0.1/v1", ())

    asyncio.run(ask())


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
    folder = tmp_path / "folder"
    folder.mkdir()
    entry = folder / "authorities.pem"
    entry.write_bytes(file.read_bytes())
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    listed = share_tls(httpx.create_ssl_context)
    assert share_tls(httpx.create_ssl_context) is listed
    os.utime(entry, (2**32, 2**32))
    assert share_tls(httpx.create_ssl_context) is not listed
