"""What a client can send to be everybody's trouble: bombs, line breaks, a thousand requests, references elsewhere."""

import asyncio
import gzip
import hashlib
import json
import tracemalloc
import zlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fakes.openai_server import OpenAiServer
from tests.fakes.stream_server import stream_server
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.openai_asking import Open, chunks
from tests.flow.raw_http import raw_connection
from tg_base.config import ApiKey, GatewayConfig
from tg_gateway.http.body_reader import INFLATE_STEP_BYTES, inflate
from tg_llama.grammar.json_grammar import json_grammar
from tg_schema import TextCompletionRequest, Tool
from tg_schema.errors import BadRequest

COMPLETION, SOCKET = "api/v1/text-completion", "api/v1/socket"
BREAKS = "x\r\nX-Injected: 1\r\n\r\ndata: {}\n\nevent: y\u2028\u0085\x00"
INFLATED = 200 * 1024 * 1024
MOST_HELD = 24 * 1024 * 1024
"""Bytes that a compressed body may cost: the body's limit, and what the decoder makes of one read."""

KEY = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest())
LOCKED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compressed_bomb_is_refused_before_it_is_inflated(it: Opened, encoding: str) -> None:
    bomb = (gzip if encoding == "gzip" else zlib).compress(bytes(INFLATED), 9)
    assert len(bomb) < 1024 * 1024
    tracemalloc.start()
    try:
        async with it.http.post(COMPLETION, data=bomb, headers={"Content-Encoding": encoding}) as response:
            assert response.status == 413
        assert tracemalloc.get_traced_memory()[1] < MOST_HELD
    finally:
        tracemalloc.stop()
    async with it.http.post(COMPLETION, json={"prompt": "1"}) as response:
        assert response.status == 200


async def test_a_body_without_a_token_is_not_inflated() -> None:
    """What is no gzip would end the connection if anybody tried."""
    async with open_gateway(LOCKED) as it, raw_connection(it.address) as raw:
        for _ in range(2):
            raw.post(f"/{COMPLETION}", b"no gzip", headers="Content-Encoding: gzip\r\n")
            assert (await raw.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
            await raw.until(b"}}")


@pytest.mark.parametrize("expected", ["100-continue", "something"])
async def test_an_expectation_without_a_token_is_refused_first(expected: str) -> None:
    async with open_gateway(LOCKED) as it, raw_connection(it.address) as raw:
        raw.post(f"/{COMPLETION}", b"{}", headers=f"X-Request-Id: mine\r\nExpect: {expected}\r\n")
        head = await raw.until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 401 ")
        assert b"X-Request-Id: mine\r\n" in head


async def test_a_body_is_asked_for_after_the_checks(it: Opened) -> None:
    body = b'{"prompt":"2"}'
    head = f"POST /{COMPLETION} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    async with raw_connection(it.address) as raw:
        raw.send(f"{head}Expect: 100-Continue\r\n\r\n".encode())
        assert await raw.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.send(body)
        assert (await raw.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert b'"response":"0 1 "' in await raw.until(b"}")


async def test_a_length_may_begin_with_more_zeros_than_a_number_has_digits(it: Opened) -> None:
    body = b'{"prompt":"2"}'
    head = f"POST /{COMPLETION} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body):05000}\r\n\r\n".encode()
    async with raw_connection(it.address) as raw:
        for _ in range(2):
            raw.send(head + body)
            assert (await raw.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert b'"response":"0 1 "' in await raw.until(b"}")


async def test_an_expectation_that_is_not_known(it: Opened) -> None:
    async with it.http.post(COMPLETION, data=b"{}", headers={"Expect": "something"}) as response:
        assert (response.status, len(response.headers["X-Request-Id"])) == (417, 32)
        assert (await response.json())["error"] == {
            "type": "bad-request",
            "message": "the header Expect may only be 100-continue",
        }


async def test_an_empty_expectation_is_none(it: Opened) -> None:
    async with it.http.post(COMPLETION, data=b'{"prompt":"2"}', headers={"Expect": ""}) as response:
        assert response.status == 200


@pytest.mark.parametrize("path", ["health", "metrics"])
async def test_an_expectation_without_a_body_does_not_matter(it: Opened, path: str) -> None:
    async with it.http.get(path, headers={"Expect": "something"}) as response:
        assert response.status == 200


async def test_the_loop_has_its_turn_while_a_body_is_inflated() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    try:
        body = bytes(32 * INFLATE_STEP_BYTES)
        assert await inflate(gzip.compress(body, 9), "gzip", len(body), lambda size: None) == body
    finally:
        counting.cancel()
    assert turns >= 32


@pytest.mark.parametrize("streaming", [True, False])
async def test_line_breaks_in_names_stay_inside_the_json(it: Opened, streaming: bool) -> None:
    body = json.dumps({"prompt": "2", "model": BREAKS, "user": BREAKS, "streaming": streaming}).encode()
    for path in (f"/{COMPLETION}", "/api/v1/flow/x%0d%0aX-Injected:%201/service/text-completion"):
        async with raw_connection(it.address) as raw:
            raw.post(path, body, headers="Connection: close\r\n")
            head, _, rest = (await raw.rest()).partition(b"\r\n\r\n")
        assert b"injected" not in head.lower()
        assert head.startswith(b"HTTP/1.1 404 ")
        assert json.loads(rest)["error"]["type"] == "not-found"
        assert not {b"\r", b"\n"} & {rest[at : at + 1] for at in range(len(rest))}


async def test_line_breaks_in_a_sockets_ids_come_back_as_they_went(it: Opened) -> None:
    async with it.http.ws_connect(SOCKET) as socket:
        for field in ("model", "service", "flow", "id"):
            asked = {"id": BREAKS, "service": "text-completion", "request": {"prompt": "1", "streaming": True}}
            if field == "model":
                asked["request"] = {"prompt": "1", "model": BREAKS}
            else:
                asked[field] = BREAKS
            await socket.send_str(json.dumps(asked))
            while True:
                text = await socket.receive_str(timeout=5)
                frame = json.loads(text)
                assert frame["id"] == BREAKS
                assert "\n" not in text
                if frame["complete"]:
                    break
            assert ("error" in frame) == (field != "id")


async def test_a_thousand_requests_on_one_socket_good_and_bad(it: Opened) -> None:
    """Each id gets exactly one end, right where it can be; what is wrong with one does not reach another."""
    expected = "".join(f"{number} " for number in range(20))
    wrong: dict[int, dict[str, Any]] = {
        0: {"request": {"prompt": "no number"}}, 1: {"service": "nope"}, 2: {"flow": "nope"},
        3: {"request": {"prompt": 7}}, 4: {"request": {"prompt": "1", "model": "nope"}},
    }  # fmt: skip
    texts: defaultdict[int, str] = defaultdict(str)
    ends: dict[int, str] = {}
    async with it.http.ws_connect(SOCKET) as socket:
        for name in range(1000):
            good = {"id": name, "service": "text-completion", "request": {"prompt": "20", "streaming": True}}
            await socket.send_json(good | wrong.get(name % 20, {}))
            if name % 100 == 0:
                await socket.send_json({"id": "never asked", "cancel": True})
                await socket.send_str("[" * 10_000)
                await socket.send_str('{"id": {}}')
        async with asyncio.timeout(30):
            while len(ends) < 1000:
                frame = json.loads(await socket.receive_str())
                name = frame.get("id")
                if name is None:
                    assert frame["error"]["type"] == "bad-request"
                    continue
                assert name not in ends
                texts[name] += frame.get("response", {}).get("response", "")
                if frame["complete"]:
                    ends[name] = frame["error"]["type"] if "error" in frame else "ok"
    found = Counter(ends[name] for name in range(1000) if name % 20 not in wrong)
    assert set(found) <= {"ok", "rate-limited"}, found
    assert found["ok"] >= 200
    assert {texts[name] for name, end in ends.items() if end == "ok"} == {expected}
    assert all(ends[name] != "ok" for name in range(1000) if name % 20 in wrong)


@dataclass
class Canary:
    """A server that nobody should visit."""

    url: str = ""
    visits: list[bytes] = field(default_factory=list)
    visited: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Canary"]:
        async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.visits.append(await reader.readline())
            self.visited.set()

        async with stream_server(visit) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self


def schemas(url: str) -> list[dict[str, Any]]:
    return [
        {"$ref": f"{url}/a.json"},
        {"type": "object", "properties": {"a": {"$ref": f"{url}/a.json#/$defs/a"}}, "required": ["a"]},
        {"$id": f"{url}/root.json", "type": "object", "properties": {"a": {"$ref": "other.json"}}},
        {"type": "array", "items": {"$dynamicRef": f"{url}/a.json"}},
        {"$schema": f"{url}/meta.json", "$ref": "file:///etc/hostname"},
    ]


async def test_the_grammar_refuses_them() -> None:
    async with Canary().listening() as canary:
        for schema in schemas(canary.url):
            with pytest.raises(BadRequest, match="schema"):
                await asyncio.to_thread(json_grammar, schema)
        assert canary.visits == []
        _, writer = await asyncio.open_connection(*canary.url.removeprefix("http://").split(":"))
        writer.write(b"here\n")
        await asyncio.wait_for(canary.visited.wait(), 5)
        writer.close()


async def test_a_provider_gets_them_as_they_are(openai_server: OpenAiServer, open_openai: Open) -> None:
    async with Canary().listening() as canary:
        provider = await open_openai()
        for schema in schemas(canary.url):
            tool = Tool("look", "looks", schema)
            for request in (
                TextCompletionRequest(prompt="p", streaming=True, model="ours", response_format="json", schema=schema),
                TextCompletionRequest(prompt="p", streaming=True, model="ours", tools=(tool,)),
            ):
                try:
                    await chunks(provider, request)
                except BadRequest:
                    continue
        assert len(openai_server.exchanges) >= len(schemas(canary.url))
        assert canary.visits == []
