"""Heads of requests: those that cannot be read, HEAD itself, and requests behind one that is not answered yet."""

import asyncio
import json
import sys
from typing import Any

import pytest

from tests.flow.open_gateway import open_gateway
from tests.flow.raw_http import PATIENCE_SECONDS, raw_connection
from tests.flow.socket_frames import upgrade
from tests.until import until
from tests.within import within
from tg_gateway.http_connections import abort_left

LONG = b"x" * 9_000
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n"
LIMIT = "8190 bytes"


async def refuse(*pieces: bytes) -> tuple[int, Any]:
    """Status and body; behind them the connection is closed."""
    async with open_gateway() as it, raw_connection(it.address) as raw:
        for piece in pieces:
            raw.send(piece)
        answer = await raw.rest()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"connection: close" in head.lower()
        assert b"application/json" in head
        assert b"x-request-id" in head.lower()
        # One answer, and no second one for the rest.
        assert answer.count(b"HTTP/1.0 ") == 1
        assert (await it.http.get("/health")).status == 200
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    ("said", "status", "sentence"),
    [
        (b"GET /v1/models?a=" + LONG + b" HTTP/1.1\r\nHost: h\r\n\r\n", 414, LIMIT),
        (b"GET /v1/models?a=" + 20 * LONG, 414, LIMIT),
        (POST + b"A: " + LONG + b"\r\n\r\n", 431, LIMIT),
        (POST + b"".join(b"A%d: b\r\n" % n for n in range(200)) + b"\r\n", 431, "too many headers: 128"),
        (POST + b"A B: c\r\n\r\n", 400, "its head is malformed"),
        (b"GET /v1/models HTTP/x\r\n\r\n", 400, "malformed"),
    ],
)
async def test_it_is_refused_in_the_shape_of_its_door(said: bytes, status: int, sentence: str) -> None:
    answered, body = await refuse(said)
    assert answered == status
    assert sentence in body["error"]["message"]
    assert body["error"]["type"] == "invalid_request_error"


async def test_doors_differ() -> None:
    """The shape is that of the path, also where that came in an earlier read."""
    line = b"POST /v1/messages HTTP/1.1\r\n"
    for pieces in ((line + b"A: " + LONG,), (line, b"A: " + LONG)):
        status, body = await refuse(*pieces)
        assert (status, body["type"], LIMIT in body["error"]["message"]) == (431, "error", True)


@pytest.mark.parametrize("said", [b"\x16\x03\x01\x02\r\n\r\n", b"\x00\r\n\r\n", b"secret canary\r\n\r\n"])
async def test_what_has_no_path_is_refused_as_an_unknown_path(said: bytes) -> None:
    status, body = await refuse(said)
    assert (status, body["error_type"]) == (400, "validation")
    assert ("http://" in body["error"]) == said.startswith(b"\x16")
    assert "canary" not in str(body)


async def test_the_answer_before_it_comes_first() -> None:
    async with open_gateway() as it, raw_connection(it.address) as raw:
        raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await raw.until(b"}")).startswith(b"HTTP/1.1 200 ")
        raw.send(b"GET /v1/models?" + LONG)
        assert (await raw.rest()).startswith(b"HTTP/1.0 414 ")


@pytest.mark.parametrize("body", [b"5\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n\r\n"])
async def test_a_body_that_came_in_pieces_is_no_first_line(body: bytes) -> None:
    """Nor are empty lines, which some clients send behind a body."""
    async with open_gateway() as it, raw_connection(it.address) as raw:
        raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await raw.until(b"}")).startswith(b"HTTP/1.1 200 ")
        for piece in (body[:-1], body[-1:], b"POST /v1/messages HTTP/1.1\r\nA B: c\r\n\r\n"):
            raw.send(piece)
        head, _, body = (await raw.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 400 ")
    assert "its head is malformed" in json.loads(body)["error"]["message"]


async def test_empty_lines_may_come_before_a_request() -> None:
    status, body = await refuse(b"\r\n\r\nPOST /v1/messages HTTP/1.1\r\nA B: c\r\n\r\n")
    assert (status, body["type"]) == (400, "error")


NEXT = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_response_that_streams_has_a_head_alone(version: str) -> None:
    """Also while the response is made: the head waits for nothing."""
    async with open_gateway() as it:
        it.llm.step = asyncio.Semaphore(0)
        asked = {"model": "counting", "input": "1", "background": True, "stream": True}
        async with it.http.post("v1/responses", json=asked) as response:
            name = json.loads((await response.content.readuntil(b"}\n\n")).partition(b"data: ")[2])["response"]["id"]
            async with raw_connection(it.address) as raw:
                raw.send(f"HEAD /v1/responses/{name}?stream=true HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
                if version == "1.1":
                    raw.send(NEXT)
                head, _, rest = (await raw.rest()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream")
            assert rest.startswith(b"HTTP/1.1 " if version == "1.1" else b"")
            # Of a connection that is not kept, its end is the end of the answer.
            assert b"data:" not in rest
            it.llm.step.release()
            assert b"response.completed" in await within(5, response.read())


@pytest.mark.parametrize("path", ["/api/v1/socket", "/v1/responses", "/lmtp"])
async def test_a_socket_is_opened_by_get_alone(path: str) -> None:
    async with open_gateway() as it, raw_connection(it.address) as raw:
        assert (await upgrade(raw, path=path, method="HEAD")).startswith(b"HTTP/1.1 405 ")


ASKED_BEHIND = 100
"""Requests; the server reads no more behind 32."""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the server sees it when it reads again")
@pytest.mark.parametrize("leaving", ["close", "abort"])
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_client_that_leaves_behind_many_requests_stops_the_model(leaving: str, *, streaming: bool) -> None:
    async with open_gateway(listed=True) as it:
        it.llm.step = asyncio.Semaphore(0)
        async with raw_connection(it.address) as raw:
            body = {"prompt": "100", "streaming": streaming}
            raw.post("/api/v1/text-completion", json.dumps(body).encode())
            raw.send(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n" * ASKED_BEHIND)
            await it.llm.started.wait()
            getattr(raw.writer.transport, leaving)()
            await asyncio.wait_for(it.llm.stopped.wait(), PATIENCE_SECONDS)


async def test_requests_behind_one_that_takes_long_are_all_answered() -> None:
    async with open_gateway(listed=True) as it:
        it.llm.step = asyncio.Semaphore(0)
        async with raw_connection(it.address) as raw:
            raw.post("/api/v1/text-completion", b'{"prompt":"1"}')
            raw.send(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n" * ASKED_BEHIND)
            await it.llm.started.wait()
            runner = it.gateway._runner
            await until(
                lambda: any(not open_.transport.is_reading() for open_ in runner.connections if open_.transport)
            )
            abort_left(runner)
            it.llm.step.release()
            for _ in range(1 + ASKED_BEHIND):
                head = await raw.until(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 ")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await asyncio.wait_for(raw.reader.readexactly(int(length.split(b":")[1])), PATIENCE_SECONDS)
