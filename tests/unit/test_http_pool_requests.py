"""Requests to a provider, as the pool writes them, over checked TLS."""

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import certifi
import httpx
import pytest
from typing_extensions import override
from yarl import URL

from tests.fakes.loopback_tls import loopback_tls
from tests.fakes.stream_server import stream_server
from tests.fakes.threaded_server import receive, saying, serving
from tests.unit.test_http_pool import CHUNKED, HELLO, RUNNERS, Runner
from tests.until import until
from tg_base.llm import ANSWERS, PreparedConnection, SdkRecorder, share_tls
from tg_base.llm.http.pool import HttpPool, HttpTarget
from tg_base.telemetry import Span, trace
from tg_schema.errors import BadRequest, Unavailable


async def post(url: URL, headers: Iterable[tuple[str, str]], pool: HttpPool) -> None:
    answer = await pool.ask("POST", str(url), headers, '{"a":"\xe9"}'.encode())
    assert await answer.read() == b"hello"
    answer.close()
    await pool.aclose()


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ((), ()),
        ((("Content-Type", "application/json"), ("Authorization", "Bearer k"), ("Content-Length", "999")),) * 2,
        ((("X-Name", "caf\u00e9"), ("X-Empty", "")),) * 2,
    ],
)
def test_a_request_as_it_is_written(headers: tuple[tuple[str, str], ...], sent: tuple[tuple[str, str], ...]) -> None:
    heads: list[bytes] = []

    def converse(connection: socket.socket) -> None:
        while head := receive(connection):
            heads.append(head)
            connection.sendall(HELLO)

    with serving(converse) as url:
        asyncio.run(post(url / "chat" % {"api-version": "2024-10-21"}, headers, HttpPool()))
    expected = [*(pair for pair in sent if pair[0] != "Content-Length"), ("Host", f"127.0.0.1:{url.port}")]
    expected += [("Accept-Encoding", "identity"), ("Content-Length", "10")]
    lines = "".join(f"{name}: {value}\r\n" for name, value in expected)
    assert heads[0].decode() == f'POST /v1/chat?api-version=2024-10-21 HTTP/1.1\r\n{lines}\r\n{{"a":"\xe9"}}'


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
def test_tls_is_checked_both_ways(run: Runner, tmp_path: Path) -> None:
    tls, certificate = loopback_tls(tmp_path)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"}")
            writer.write(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")

    async def ask() -> None:
        async with stream_server(answer, ssl=tls) as port:
            url = URL(f"https://127.0.0.1:{port}/v1")
            await post(url, (), HttpPool(ssl.create_default_context(cafile=certificate)))
            pool = HttpPool(ssl.create_default_context())
            with pytest.raises(Unavailable):
                await pool.ask("POST", str(url), (), b"{}")
            await pool.aclose()

    run(ask())


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
def test_a_proxy_leads_to_tls(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy has its password, and the server alone what is asked of it."""
    tls, certificate = loopback_tls(tmp_path)
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(HELLO)

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        host, _, port = asked[0].split()[1].decode().rpartition(":")
        inner, outer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while part := await source.read(65536):
                    sink.write(part)
            finally:
                sink.close()

        try:
            await asyncio.gather(copy(reader, outer), copy(inner, writer))
        finally:
            outer.transport.abort()
            with suppress(OSError):
                await outer.wait_closed()

    async def ask() -> None:
        async with stream_server(answer, ssl=tls) as port, stream_server(lead) as proxy:
            url = URL(f"https://127.0.0.1:{port}/v1")
            monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{proxy}")
            monkeypatch.setenv("NO_PROXY", "")
            await post(url, (("X-Key", "k"),), HttpPool(ssl.create_default_context(cafile=certificate)))
            monkeypatch.setenv("HTTPS_PROXY", "nonsense")
            with pytest.raises(Unavailable, match="through the proxy"):
                await HttpPool().ask("POST", str(url), (), b"{}")

    run(ask())
    assert b"Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" in asked[0]
    assert b"X-Key" not in asked[0]


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
def test_a_proxy_that_refuses_to_lead_on_is_told_nothing(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """It offers its connection for another request: what was for the server would go to it in clear text."""
    heard: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heard.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 407 Who\r\nContent-Length: 4\r\n\r\nwho?")

    async def ask() -> None:
        pool = HttpPool()
        async with stream_server(refuse) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy}")
            monkeypatch.setenv("NO_PROXY", "")
            for _ in range(2):
                with pytest.raises(Unavailable, match="through the proxy"):
                    await pool.ask("POST", "https://server.example/v1", (("X-Key", "k"),), b"{}")
            await pool.aclose()

    run(ask())
    assert [head.split()[0] for head in heard] == [b"CONNECT", b"CONNECT"]


def test_a_host_is_looked_up_once_unless_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """On asyncio's loop, which asks Python's `socket`; the first of those who wait for the answer leaves."""
    asked: list[str] = []
    answer, find = threading.Event(), socket.getaddrinfo

    def look_up(host: str, *place: Any, **options: Any) -> Any:
        asked.append(host)
        if host == "away.example":
            raise socket.gaierror
        assert answer.wait(20)
        return find("127.0.0.1", *place, **options)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(HELLO)

    async def ask() -> None:
        pool = HttpPool()
        async with stream_server(greet) as port, asyncio.timeout(20):
            asking = [asyncio.create_task(pool.ask("POST", f"http://here.example:{port}/", (), b"{}")) for _ in "1234"]
            await until(lambda: asked)
            asking.pop(0).cancel()
            answer.set()
            for each in asking:
                assert await (await each).read() == b"hello"
            for _ in "12":
                with pytest.raises(Unavailable):
                    await pool.ask("POST", "http://away.example/", (), b"{}")
                await asyncio.sleep(0)
            await pool.aclose()

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    asyncio.run(ask())
    assert asked == ["here.example", "away.example", "away.example"]


def test_a_proxy_that_no_dns_has_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        pool = HttpPool()
        with pytest.raises(Unavailable, match="through the proxy"):
            await pool.ask("POST", "https://server.example/v1", (), b"{}")
        await pool.aclose()

    monkeypatch.setenv("HTTPS_PROXY", "http://a..b:3128")
    monkeypatch.setenv("NO_PROXY", "")
    asyncio.run(ask())


@pytest.mark.parametrize("header", [("X-Key", "k\r\nX-More: 1"), ("X-Key\0", "k")])
def test_a_header_that_would_end_its_line_is_refused(header: tuple[str, str]) -> None:
    async def prepare() -> None:
        with pytest.raises(BadRequest, match="a header for the provider"):
            HttpPool().target("http://127.0.0.1/v1", (header,))

    asyncio.run(prepare())


def test_a_url_s_password_is_sent_as_a_header() -> None:
    target = HttpPool().target("http://me:secret@127.0.0.1/v1", ())
    assert b"Authorization: Basic bWU6c2VjcmV0\r\n" in target.head


def test_what_requests_have_in_common_is_made_once() -> None:
    """A connection whose SDK prepares its requests: what is the same for all of them is not made for each."""
    made = []

    class Pool(HttpPool):
        @override
        def target(self, url: str, headers: Iterable[tuple[str, str]]) -> HttpTarget:
            made.append(url)
            return super().target(url, headers)

    async def ask_often(url: URL) -> None:
        recorder = SdkRecorder()
        sdk = httpx.AsyncClient(transport=cast(httpx.AsyncBaseTransport, recorder), headers={"X-Key": "k"})
        connection = PreparedConnection(recorder, {ANSWERS: partial(sdk.post, str(url))}, Pool())
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
        assert repr(target) == "HttpTarget(127.0.0.1:80/v1)"
        await pool.aclose()
        with pytest.raises(Unavailable, match="closed"):
            await pool.send("POST", target, b"{}")

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


def test_a_target_that_is_used_again_sends_the_ids_of_each_request() -> None:
    heads: list[str] = []

    def converse(connection: socket.socket) -> None:
        while head := receive(connection):
            heads.append(head.decode())
            connection.sendall(HELLO)

    spans = [
        Span.at_door("r-1", None),
        # A plain peer's id may be any text, which must not become a header of its own.
        Span.from_peer("r-2\r\nX-Admin: yes", None, None, None),
    ]

    async def ask_twice(url: URL) -> None:
        pool = HttpPool()
        target = pool.target(str(url), [("X-Request-Id", "always")])
        for span in spans:
            trace.enter(span)
            answer = await pool.send("GET", target, None)
            await answer.read()
        await pool.aclose()

    with serving(converse) as url:
        asyncio.run(ask_twice(url))
    ids = [[line for line in head.splitlines() if line.startswith(("X-", "traceparent"))] for head in heads]
    first, second = [f"traceparent: {span.traceparent}" for span in spans]
    assert ids == [[first, "X-Request-Id: r-1"], [second]]
