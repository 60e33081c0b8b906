"""The native REST paths: every status and every shape, as a client sees them, whole and streamed."""

import asyncio
import gzip
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.fakes.failing_llm import FailingLlm
from tests.flow.open_gateway import ON_ANY_PORT, Opened, open_gateway
from tests.flow.raw_http import RawConnection, raw_connection
from tests.within import within
from tg_base.config import GatewayConfig
from tg_gateway.http.body_reader import INFLATE_STEP_BYTES

COMPLETION = "api/v1/text-completion"
PROMPT = "api/v1/prompt"


async def post(it: Opened, path: str, body: object) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with it.http.post(path, data=data) as response:
        assert response.content_type == "application/json"
        return response.status, json.loads(await response.read())


async def test_sampling_and_the_like_reach_the_model(it: Opened) -> None:
    body = {"system": "s", "prompt": "1", "model": "counting", "workspace": "default", "response_format": "json"}
    more = {"sampling": {"temperature": 0.5, "stop": ["x"]}, "schema": {"a": 1}}
    assert (await post(it, COMPLETION, body | more))[0] == 200
    request = it.llm.requests[0]
    assert request.sampling is not None
    assert (request.sampling.temperature, request.sampling.stop) == (0.5, ("x",))
    assert (request.system, request.response_format, request.schema) == ("s", "json", {"a": 1})


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"id": "text", "variables": {"a": [1, None], "b": "é"}}, {"text": 'a=[1, null] b="\\u00e9" '}),
        ({"id": "text", "terms": {"a": "[1]"}}, {"text": "a=[1] "}),
        ({"id": "text"}, {"text": ""}),
    ],
)
async def test_a_whole_prompt(it: Opened, body: dict[str, Any], answer: dict[str, Any]) -> None:
    status, got = await post(it, PROMPT, body)
    terms = len(body.get("variables") or body.get("terms") or {})
    assert status == 200
    assert got == answer | {"end_of_stream": True, "in_token": 2, "out_token": terms, "model": "echo"}


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        (COMPLETION, b"", 400, "JSON"),
        (COMPLETION, b"{", 400, "JSON"),
        (COMPLETION, b"[]", 400, "object"),
        (COMPLETION, b"null", 400, "object"),
        (COMPLETION, {}, 400, "prompt"),
        (COMPLETION, {"prompt": None}, 400, "prompt"),
        (COMPLETION, {"prompt": 7}, 400, "$.prompt"),
        (COMPLETION, {"prompt": "1", "streaming": "yes"}, 400, "$.streaming"),
        (COMPLETION, {"prompt": "1", "sampling": {"temprature": 1}}, 400, "temprature"),
        (COMPLETION, {"prompt": "1", "response_format": "xml"}, 400, "response_format"),
        (COMPLETION, {"prompt": "1", "model": "other"}, 404, "model"),
        (COMPLETION, {"prompt": "1", "model": "other", "streaming": True}, 404, "model"),
        (COMPLETION, b'{"prompt": "\xff"}', 400, "UTF-8"),
        (COMPLETION, b'{"prompt": "1", "sampling": {"\xff": 1}}', 400, "UTF-8"),
        (COMPLETION, b'{"prompt": "1", "sampling": {"temperature": NaN}}', 400, "JSON"),
        (COMPLETION, b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "$.prompt"),
        (COMPLETION, b'{"prompt": "1", "schema": ' + b'{"a":' * 100_000, 400, "nested too deep"),
        (COMPLETION, b'{"prompt": "1", "x": ' + b"[" * 100_000, 400, "nested too deep"),
        (COMPLETION, b'{"prompt": "1", "sampling": {"seed": ' + b"9" * 5000 + b"}}", 400, "$.sampling"),
        (PROMPT, {}, 400, "id is missing"),
        (PROMPT, {"id": "text", "variables": []}, 400, "$.variables"),
        (PROMPT, {"id": "text", "terms": {"a": 1}}, 400, "$.terms"),
        (PROMPT, {"id": "text", "terms": {"a": "1"}, "variables": {"a": 1}}, 400, "not both"),
        (PROMPT, b'{"id": "text", "variables": {"a": "\xff"}}', 400, "UTF-8"),
        (PROMPT, b'{"id": "text", "variables": {"a": ' + b"[" * 100_000, 400, "nested too deep"),
        (PROMPT, {"id": "none"}, 404, "no template has this id"),
        (PROMPT, {"id": "none", "streaming": True}, 404, "no template has this id"),
        ("api/v1/flow/nope/service/prompt", {"id": "text"}, 404, "there are: default"),
        ("api/v1/flow/default/service/agent", {"id": "text"}, 404, "text-completion, prompt"),
        ("api/v1/nope", {}, 404, "no such path"),
        ("api/v1/models", {}, 405, "the method POST"),
    ],
)
async def test_what_is_refused(it: Opened, path: str, body: object, status: int, says: str) -> None:
    kind = {400: "bad-request", 404: "not-found", 405: "bad-request"}[status]
    got, answer = await post(it, path, body)
    assert (got, list(answer), answer["error"]["type"]) == (status, ["error"], kind)
    assert says in answer["error"]["message"]
    assert (await post(it, COMPLETION, {"prompt": "2"}))[0] == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
async def test_another_method(it: Opened, method: str) -> None:
    async with it.http.request(method, COMPLETION) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        assert method in (await response.json())["error"]["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=x"])
async def test_the_content_type_does_not_matter(it: Opened, kind: str) -> None:
    async with it.http.post(COMPLETION, data=b'{"prompt":"2"}', headers={"Content-Type": kind}) as response:
        assert response.status == 200


async def test_a_body_without_a_length_over_the_limit() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    async with open_gateway(GatewayConfig(port=0, body_limit=1000)) as it:
        async with it.http.post(COMPLETION, data=pieces()) as response:
            assert response.status == 413
        async with it.http.post(COMPLETION, data=b"0" * 1500, compress="gzip") as response:
            assert response.status == 413


async def test_an_encoding_that_is_none(it: Opened) -> None:
    headers = {"Content-Encoding": "gzip"}
    async with it.http.post(COMPLETION, data=b'{"prompt":"2"}', headers=headers) as response:
        assert response.status == 400
        assert (await response.json())["error"]["type"] == "bad-request"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip, br"])
async def test_an_encoding_that_is_not_known(it: Opened, encoding: str) -> None:
    headers = {"Content-Encoding": encoding, "X-Request-Id": "mine"}
    async with it.http.post(COMPLETION, data=b'{"prompt":"2"}', headers=headers) as response:
        assert (response.status, response.headers["X-Request-Id"]) == (415, "mine")
        assert (await response.json())["error"] == {
            "type": "bad-request",
            "message": "the body's Content-Encoding must be gzip, deflate or identity",
        }


def _deflate_raw(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-zlib.MAX_WBITS)


def _gzip_in_members(data: bytes) -> bytes:
    return b"".join(gzip.compress(data[start : start + 5]) for start in range(0, len(data), 5))


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("X-Gzip", gzip.compress),
        ("gzip", _gzip_in_members),
        ("deflate", zlib.compress),
        ("deflate", _deflate_raw),
        ("identity", bytes),
    ],
)
@pytest.mark.parametrize("padding", [0, 2 * INFLATE_STEP_BYTES - 14, 500_000])
async def test_a_compressed_body(it: Opened, encoding: str, pack: Callable[[bytes], bytes], padding: int) -> None:
    data = b'{"prompt":"2"}' + b" " * (padding if pack is not _gzip_in_members else padding // 100)
    async with it.http.post(COMPLETION, data=pack(data), headers={"Content-Encoding": encoding}) as response:
        assert (response.status, (await response.json())["response"]) == (200, "0 1 ")


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_compressed_body_that_is_cut(it: Opened, pack: Callable[[bytes], bytes]) -> None:
    headers = {"Content-Encoding": "gzip" if pack is gzip.compress else "deflate"}
    async with it.http.post(COMPLETION, data=pack(b'{"prompt":"2"}')[:-1], headers=headers) as response:
        assert (response.status, (await response.json())["error"]["type"]) == (400, "bad-request")


async def test_ids_in_the_answer(it: Opened) -> None:
    async with it.http.post(COMPLETION, json={"prompt": "1"}, headers={"X-Request-Id": "mine-1"}) as response:
        assert response.headers["X-Request-Id"] == "mine-1"
        assert len(response.headers["X-Stream-Id"]) == 32
    async with it.http.post(COMPLETION, json={}, headers={"X-Request-Id": "not mine"}) as response:
        assert len(response.headers["X-Request-Id"]) == 32


async def test_the_request_timeout() -> None:
    async with open_gateway(GatewayConfig(port=0, request_timeout=0.05)) as it:
        it.llm.step = asyncio.Semaphore(0)
        status, answer = await post(it, COMPLETION, {"prompt": "1"})
        assert (status, answer["error"]["type"]) == (504, "timeout")
        await within(1, it.llm.stopped.wait())


def test_the_default_is_loopback() -> None:
    assert (GatewayConfig().host, GatewayConfig().port) == ("127.0.0.1", 8888)
    assert ON_ANY_PORT.auth == "auto"


PATH = "/api/v1/text-completion"


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


async def test_head_and_first_event_come_in_one_piece(raw: RawConnection) -> None:
    raw.post(PATH, body(1))
    assert b"data: " in await raw.reader.read(65536)


async def test_a_connection_serves_again_after_a_stream(raw: RawConnection) -> None:
    for words in (1, 2, 3):
        raw.post(PATH, body(words))
        text = unchunked((await raw.until(b"0\r\n\r\n")).partition(b"\r\n\r\n")[2])
        answer = "".join(str(event["response"]) for event in events_of(text))
        assert answer == "".join(f"{number} " for number in range(words))


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
