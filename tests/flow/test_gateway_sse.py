"""Streaming answers over HTTP: the exact bytes, errors before and after the first, clients that leave or never read."""

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientPayloadError

from tests.fakes.failing_llm import FailingLlm
from tests.fakes.wordy_llm import WordyLlm
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.raw_http import RawConnection, raw_connection
from tests.within import within
from tg_base.config import GatewayConfig
from tg_gateway.access import Limits

PATH = "/api/v1/text-completion"


@pytest.fixture
async def it() -> AsyncIterator[Opened]:
    async with open_gateway() as opened:
        yield opened


@pytest.fixture
async def raw(it: Opened) -> AsyncIterator[RawConnection]:
    async with raw_connection(it.address) as connection:
        yield connection


def body(words: int) -> bytes:
    return json.dumps({"prompt": str(words), "streaming": True}).encode()


def events_of(text: bytes) -> list[dict[str, object]]:
    return [json.loads(line[6:]) for line in text.split(b"\n") if line.startswith(b"data: ")]


def unchunked(data: bytes) -> bytes:
    whole = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        whole, data = whole + data[:length], data[length + 2 :]
    return whole


async def test_the_bytes(it: Opened, raw: RawConnection) -> None:
    it.llm.step = asyncio.Semaphore(1)
    raw.post(PATH, body(2))
    first = b'data: {"response":"0 ","model":"counting","end_of_stream":false}\n\n'
    head, _, rest = (await raw.until(b"\n\n\r\n")).partition(b"\r\n\r\n")
    assert rest == b"%x\r\n%b\r\n" % (len(first), first)
    lines = head.decode().split("\r\n")
    assert lines[:4] == [
        "HTTP/1.1 200 OK",
        "Content-Type: text/event-stream; charset=utf-8",
        "Cache-Control: no-cache",
        "X-Accel-Buffering: no",
    ]
    assert [line.split(":")[0] for line in lines[4:]] == ["X-Request-Id", "X-Stream-Id", "Date", "Transfer-Encoding"]
    it.llm.step.release()
    last = rb'data: \{"response":"(1 )?","in_token":7,"out_token":2,"model":"counting","end_of_stream":true,'
    assert re.search(last + rb'"finish_reason":"stop"\}\n\n$', unchunked(await raw.until(b"0\r\n\r\n")))


async def test_head_and_first_event_come_in_one_piece(raw: RawConnection) -> None:
    raw.post(PATH, body(1))
    assert b"data: " in await raw.reader.read(65536)


async def test_a_connection_serves_again_after_a_stream(raw: RawConnection) -> None:
    for words in (1, 2, 3):
        raw.post(PATH, body(words))
        text = unchunked((await raw.until(b"0\r\n\r\n")).partition(b"\r\n\r\n")[2])
        answer = "".join(str(event["response"]) for event in events_of(text))
        assert answer == "".join(f"{number} " for number in range(words))


async def test_http_1_0_gets_the_same_unchunked(raw: RawConnection) -> None:
    raw.post(PATH, body(2), version="1.0")
    head, _, text = (await raw.rest()).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    assert b"Connection: close" in head
    assert [event["end_of_stream"] for event in events_of(text)][-1] is True


async def test_an_error_before_the_first_byte_is_a_status(it: Opened) -> None:
    async with it.http.post(PATH, json={"prompt": "1", "model": "x", "streaming": True}) as response:
        assert (response.status, response.content_type) == (404, "application/json")


async def test_an_error_after_the_first_byte_is_the_last_event() -> None:
    async with open_gateway(llm=FailingLlm()) as it, it.http.post(PATH, data=body(2)) as response:
        assert response.status == 200
        events = events_of(await response.read())
        assert "".join(str(event.get("response", "")) for event in events) == "0 1 "
        error = events[-1].pop("error")
        assert events[-1] == {"end_of_stream": True}
        assert isinstance(error, dict)
        assert error["type"] == "incomplete-stream"
        assert error["message"]


async def test_keep_alive_before_the_first_token_and_in_gaps() -> None:
    async with open_gateway(GatewayConfig(port=0, keep_alive=0.02)) as it, raw_connection(it.address) as raw:
        it.llm.step = asyncio.Semaphore(0)
        raw.post(PATH, body(1))
        head = await raw.until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        comment = b"e\r\n: keep-alive\n\n\r\n"
        assert await raw.until(comment) == comment
        assert await raw.until(comment) == comment
        it.llm.step.release()
        rest = unchunked(await raw.until(b"0\r\n\r\n"))
        assert "".join(str(event["response"]) for event in events_of(rest)) == "0 "


async def test_an_error_after_a_keep_alive_is_an_event() -> None:
    async with open_gateway(GatewayConfig(port=0, keep_alive=0.01), llm=FailingLlm()) as it:
        it.llm.step = asyncio.Semaphore(0)
        async with it.http.post(PATH, data=body(1)) as response:
            assert await response.content.readline() == b": keep-alive\n"
            it.llm.step.release()
            assert "error" in events_of(await response.read())[-1]


@pytest.mark.parametrize("tokens", [0, 3])
async def test_a_client_that_leaves_stops_the_model(it: Opened, raw: RawConnection, tokens: int) -> None:
    it.llm.step = asyncio.Semaphore(0)
    raw.post(PATH, body(1000))
    await it.llm.started.wait()
    for number in range(tokens):
        it.llm.step.release()
        await raw.until(b'"response":"%d ' % number)
    raw.writer.transport.abort()
    await within(1, it.llm.stopped.wait())
    assert it.llm.generated == tokens


async def test_a_client_that_does_not_read_is_cut_off_alone() -> None:
    async with open_gateway(limits=Limits(write=0.2), llm=WordyLlm()) as it, raw_connection(it.address) as raw:
        raw.post(PATH, body(10_000_000))
        await asyncio.wait_for(it.llm.stopped.wait(), 10)
        generated = it.llm.generated
        assert generated < 10_000_000
        async with it.http.post(PATH, data=body(100)) as response:
            assert events_of(await response.read())[-1]["end_of_stream"] is True


async def test_text_can_not_break_out_of_its_event(it: Opened) -> None:
    nasty = "a\r\ndata: {}\n\nevent: x\n\u2028\u2029\x85\x00"
    request = {"id": "text", "terms": {nasty: nasty}, "streaming": True}
    async with it.http.post("/api/v1/prompt", json=request) as response:
        text = await response.read()
        assert "".join(str(event["text"]) for event in events_of(text)) == f"{nasty}={nasty} "
        assert all(re.fullmatch(rb"data: \{.*\}", block) for block in text.split(b"\n\n")[:-1])
        assert b"\r" not in text


async def test_ids_with_line_breaks_do_not_reach_the_head(it: Opened, raw: RawConnection) -> None:
    raw.post(PATH, body(1), headers="X-Request-Id: a\x0bSet-Cookie: b\r\n")
    assert b"Set-Cookie" not in (await raw.until(b"\r\n\r\n"))


async def test_a_streaming_prompt(it: Opened) -> None:
    request = {"id": "text", "variables": {"a": 1, "b": 2}, "streaming": True}
    async with it.http.post("/api/v1/prompt", json=request) as response:
        events = events_of(await response.read())
    assert "".join(str(event["text"]) for event in events) == "a=1 b=2 "
    last = {"text": events[-1]["text"], "end_of_stream": True, "in_token": 2, "out_token": 2, "model": "echo"}
    assert events[-1] == last


async def test_a_streamed_object_comes_whole(it: Opened) -> None:
    request = {"id": "object", "variables": {"a": 1}, "streaming": True}
    async with it.http.post("/api/v1/prompt", json=request) as response:
        assert events_of(await response.read()) == [{"object": '{"a":"1"}', "end_of_stream": True, "model": "echo"}]


async def test_fifty_streams_side_by_side(it: Opened) -> None:
    async def words(count: int) -> str:
        async with it.http.post(PATH, data=body(count)) as response:
            return "".join(str(event["response"]) for event in events_of(await response.read()))

    answers = await asyncio.gather(*(words(count) for count in range(1, 51)))
    assert answers == ["".join(f"{number} " for number in range(count)) for count in range(1, 51)]


async def test_draining_lets_streams_finish() -> None:
    async with open_gateway(GatewayConfig(port=0, drain=5)) as it:
        it.llm.step = asyncio.Semaphore(1)
        async with it.http.post(PATH, data=body(2)) as running:
            await running.content.readline()
            leaving = asyncio.create_task(it.gateway.__aexit__(None, None, None))
            async with it.http.get("/health") as response:
                assert response.status == 200
            async with it.http.post(PATH, data=body(1)) as refused:
                assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
            async with it.http.get("/ready") as response:
                assert response.status == 503
                assert "shutting down" in (await response.json())["missing"][0]
            it.llm.step.release()
            assert events_of(await running.read())[-1]["end_of_stream"] is True
        await leaving


async def test_draining_ends_the_rest_with_an_error() -> None:
    async with open_gateway(GatewayConfig(port=0, drain=0.01)) as it:
        it.llm.step = asyncio.Semaphore(1)
        async with it.http.post(PATH, data=body(2)) as running:
            await running.content.readline()
            await it.gateway.__aexit__(None, None, None)
            last = events_of(b"\n" + await running.read())[-1]
        assert last["end_of_stream"] is True
        assert "shutting down" in str(last["error"])
        await within(1, it.llm.stopped.wait())


async def test_a_gateway_that_is_killed_breaks_the_body(it: Opened) -> None:
    """An end without an end marker is a broken body, so that nobody takes it for a whole answer."""
    it.llm.step = asyncio.Semaphore(1)
    async with it.http.post(PATH, data=body(2)) as running:
        await running.content.readline()
        assert running.connection is not None
        assert running.connection.transport is not None
        running.connection.transport.abort()
        with pytest.raises(ClientPayloadError):
            await running.read()
