"""Whoever has not shown a token: broken handshakes, bytes that are no request, and too many connections."""

import asyncio
import logging
import re
import socket
import struct
from collections.abc import Iterator

import pytest
from aiohttp import ClientSession, WSMsgType
from msgspec import structs
from structlog.testing import capture_logs
from structlog.typing import EventDict

from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.flow.socket_frames import PATH, answer, ask, upgrade
from tests.flow.test_gateway_auth import LOCKED, RIGHT, TOKEN
from tg_base.config import GatewayConfig

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = (
    b"GET /api/v1/socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n"
)
TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 100
COMPLETION = "/api/v1/text-completion"
CUT = "tg_gateway_unauthenticated_refused_total"
FEW = structs.replace(LOCKED, max_unauthenticated=3)


@pytest.fixture
def logs(caplog: pytest.LogCaptureFixture) -> Iterator[list[EventDict]]:
    """Our log; the standard library's must stay empty."""
    with caplog.at_level(logging.WARNING), capture_logs() as lines:
        yield lines
    assert caplog.records == []


def reset(address: tuple[str, int], data: bytes) -> None:
    """Send, and cut the connection without a word."""
    with socket.create_connection(address) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.sendall(data)


async def test_a_handshake_that_is_reset_is_no_defect(logs: list[EventDict]) -> None:
    async with open_gateway() as it:
        for _ in range(50):
            reset(it.address, UPGRADE % KEY + b"\x81\x85aaaa12345")
            await it.http.get("/health")
    assert [line["event"] for line in logs if line["log_level"] in {"warning", "error", "critical"}] == []
    assert [line for line in logs if line["event"] == "gateway.request" and line["outcome"] == "cancelled"]


@pytest.mark.parametrize("key", [b"", b"x", b"{0}", b"{method}", b"{", b"\xff\xfe", "é".encode() * 8])
async def test_a_bad_key_is_a_bad_request(logs: list[EventDict], key: bytes) -> None:
    async with open_gateway() as it, raw_connection(it.address) as raw:
        raw.send(UPGRADE % key)
        assert (await raw.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        assert b'"type":"bad-request"' in await raw.until(b"}}")
    assert {line["log_level"] for line in logs} == {"info"}


@pytest.mark.parametrize("said", [TLS_HELLO + b"\r\n\r\n", b"\x00\r\n\r\n", b"GET / HTTP/1.1\r\n: x\r\n\r\n"])
async def test_what_is_no_request_is_counted(logs: list[EventDict], said: bytes) -> None:
    async with open_gateway() as it:
        before = await count(it, "tg_gateway_malformed_total")
        async with raw_connection(it.address) as raw:
            raw.send(said)
            assert (await raw.rest()).startswith(b"HTTP/1.0 400 ")
        assert await count(it, "tg_gateway_malformed_total") == before + 1
    assert [line["log_level"] for line in logs if line["event"] == "gateway.malformed"] == ["debug"]


async def test_a_token_in_the_protocols_is_not_logged(logs: list[EventDict]) -> None:
    async with open_gateway() as it, raw_connection(it.address) as raw:
        assert (await upgrade(raw, "Sec-WebSocket-Protocol: bearer, canary\r\n")).startswith(b"HTTP/1.1 101 ")
    assert "canary" not in str(logs)


async def count(it: Opened, name: str, headers: dict[str, str] | None = None) -> float:
    async with it.http.get("/metrics", headers=headers) as page:
        found = re.search(rf"^{name} (\S+)$", await page.text(), re.MULTILINE)
    return float(found[1]) if found else 0.0


async def test_connections_without_a_token_keep_nobody_of_their_address_out() -> None:
    async with open_gateway(FEW) as it:
        before = await count(it, CUT, RIGHT)
        async with (
            raw_connection(it.address) as one,
            raw_connection(it.address) as two,
            raw_connection(it.address) as three,
        ):
            for raw in (one, two, three):
                assert (await upgrade(raw)).startswith(b"HTTP/1.1 101 ")
            async with raw_connection(it.address) as late:
                late.post(COMPLETION, b'{"prompt":"1"}', headers=f"Authorization: Bearer {TOKEN}\r\n")
                assert (await late.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
                assert await one.rest() == b""
                async with ClientSession(it.gateway.url) as http, http.ws_connect(PATH) as socket:
                    assert (await answer(socket, ask("a", 1)))["error"]["type"] == "auth-required"
                    late.post(COMPLETION, b'{"prompt":"1"}', headers=f"Authorization: Bearer {TOKEN}\r\n")
                    assert b"200 OK" in await late.until(b"\r\n\r\n")
            assert await count(it, CUT, RIGHT) == before + 1


async def test_a_token_makes_room_and_so_does_leaving() -> None:
    async with open_gateway(FEW) as it:
        before = await count(it, CUT, RIGHT)
        for _ in range(3):
            for shown in (True, False):
                async with it.http.ws_connect(PATH, headers=RIGHT if shown else {}) as socket:
                    assert (await answer(socket, {"type": "auth", "token": TOKEN}))["type"] == "auth-ok"
        sockets = [await it.http.ws_connect(PATH, headers=RIGHT) for _ in range(6)]
        for socket in sockets:
            assert (await answer(socket, ask("a", 1)))["complete"] is True
        for socket in sockets:
            await socket.close()
        assert await count(it, CUT, RIGHT) == before


async def test_leaving_makes_room() -> None:
    async with open_gateway(FEW) as it:
        before = await count(it, CUT, RIGHT)
        for _ in range(9):
            async with raw_connection(it.address) as raw:
                raw.writer.write_eof()
                assert await raw.rest() == b""
        assert await count(it, CUT, RIGHT) == before


async def test_nobody_is_a_stranger_where_no_token_is_asked_for() -> None:
    async with open_gateway(GatewayConfig(port=0, drain=0.05, max_unauthenticated=1)) as it:
        sockets = [await it.http.ws_connect(PATH) for _ in range(3)]
        for socket in sockets:
            assert (await answer(socket, ask("a", 1)))["complete"] is True
            await socket.close()


async def test_a_token_that_is_taken_back_has_the_same_deadline_again() -> None:
    config = structs.replace(LOCKED, auth_timeout=2.0)
    async with open_gateway(config) as it, it.http.ws_connect(PATH, headers=RIGHT) as socket:
        await asyncio.sleep(2.2)
        assert (await answer(socket, {"type": "auth", "token": "wrong"}))["type"] == "auth-failed"
        assert (await answer(socket, {"type": "auth", "token": TOKEN}))["type"] == "auth-ok"
        assert (await answer(socket, {"type": "auth", "token": "wrong"}))["type"] == "auth-failed"
        assert (await socket.receive(timeout=10)).type is WSMsgType.CLOSE
        assert socket.close_code == 1008


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/socket", "/health"])
async def test_a_name_that_was_made_to_point_here_is_refused_without_an_origin_too(path: str) -> None:
    async with open_gateway() as it, it.http.get(path, headers={"Host": "evil.example"}) as response:
        assert response.status == 403
        assert "Host is no name of this gateway" in await response.text()


async def test_a_name_that_is_configured_is_ours() -> None:
    config = GatewayConfig(port=0, drain=0.05, hosts=("Gateway.example",))
    async with open_gateway(config) as it, it.http.get("/health", headers={"Host": "gateway.EXAMPLE:80"}) as response:
        assert response.status == 200
