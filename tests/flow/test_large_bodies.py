"""The doors of other APIs take large bodies, bounded for each key; our own take what one message of the bus carries."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from io import BytesIO

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from tests.fakes.failing_llm import FailingLlm
from tests.fakes.openai_server import OpenAiServer
from tests.flow.narrow_gateway import digest_of, token_of
from tests.flow.open_gateway import ON_ANY_PORT, open_gateway
from tests.flow.openai_asking import Open
from tests.flow.raw_http import raw_connection
from tests.until import until
from tg_base.bus import MAX_MESSAGE_BYTES
from tg_base.config import ApiKey, GatewayConfig
from tg_base.runtime import MAX_READ_HERE_OBJECTS
from tg_base.runtime.reading_cost import MAX_READ_HERE_BYTES
from tg_gateway.access import Limits
from tg_gateway.dialects import MAX_WRITE_BYTES

NATIVE = "/api/v1/text-completion"
CHAT, RESPONSES, MESSAGES, COUNT = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"
LARGE_TEXT = "1".rjust(MAX_MESSAGE_BYTES + 1_000_000)
"""What `CountingLlm` is asked for: one word."""

MANY = MAX_READ_HERE_OBJECTS + 1
"""Items with which a body is read in another process."""
PADDING = "x" * 30
"""Of an item, so that so many are not few bytes."""


def body(path: str, text: str) -> bytes:
    turns = [{"role": "user", "content": text}]
    fields = {"input": turns} if path == RESPONSES else {"prompt": text} if path == NATIVE else {"messages": turns}
    return json.dumps({"model": "counting", "max_tokens": 9, **fields}, ensure_ascii=False).encode()


def limited(body_limit: int, large_bodies: int) -> GatewayConfig:
    keys = tuple(ApiKey(name=name, sha256=digest_of(name)) for name in ("one", "other"))
    return GatewayConfig(port=0, drain=0.05, auth="on", keys=keys, body_limit=body_limit, large_bodies=large_bodies)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_a_body_larger_than_a_message_of_the_bus(path: str) -> None:
    async with open_gateway(GatewayConfig(port=0, drain=0.05)) as it:
        async with it.http.post(path, data=BytesIO(body(path, LARGE_TEXT))) as response:
            assert response.status == 200, await response.text()
        (asked,) = it.llm.requests
    assert asked.prompt == LARGE_TEXT


async def test_a_body_that_takes_long_is_read_in_another_process() -> None:
    turns = [{"role": "user", "content": f"1{PADDING}"}] * MANY
    data = BytesIO(json.dumps({"model": "counting", "messages": [*turns, {"role": "user", "content": "1"}]}).encode())
    with capture_logs() as logged:
        async with open_gateway(ON_ANY_PORT) as it, it.http.post(CHAT, data=data) as response:
            assert response.status == 200, await response.text()
    assert "gateway.large_body_here" not in {line["event"] for line in logged}


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, COUNT, NATIVE])
async def test_each_door_has_its_limit(path: str) -> None:
    async with open_gateway(GatewayConfig(port=0, drain=0.05, body_limit=1000, large_body_limit=3000)) as it:
        for size, accepted in ((900, True), (2900, path != NATIVE), (3100, False)):
            sent = body(path, "1").ljust(size)
            pieces = (sent[at : at + 500] for at in range(0, size, 500))

            async def in_chunks(pieces: object = tuple(pieces)) -> AsyncIterator[bytes]:
                assert isinstance(pieces, tuple)
                for piece in pieces:
                    yield piece

            for data in (sent, in_chunks()):
                async with it.http.post(path, data=data) as response:
                    assert (response.status != 413) is accepted, (size, response.status)


async def test_the_large_bodies_of_a_key_are_bounded() -> None:
    large, small = body(CHAT, "1".rjust(2000)), body(CHAT, "1")
    began, rest = asyncio.Event(), asyncio.Event()

    async def held() -> AsyncIterator[bytes]:
        began.set()
        await rest.wait()
        yield large

    async with open_gateway(limited(body_limit=1000, large_bodies=3000)) as it:

        async def ask(data: object, key: str = "one", **headers: str) -> tuple[int, str | None]:
            headers |= {"Authorization": f"Bearer {token_of(key)}"}
            waits = "Content-Length" in headers
            async with it.http.post(CHAT, data=data, headers=headers, expect100=waits) as response:
                return response.status, response.headers.get("Retry-After")

        first = asyncio.create_task(ask(held(), **{"Content-Length": str(len(large))}))
        # Asked for with "100 Continue": from then on it is counted.
        await began.wait()
        assert await ask(large) == (429, "1")
        assert await ask(small) == (200, None)
        assert await ask(large, "other") == (200, None)
        rest.set()
        assert await first == (200, None)
        assert await ask(large) == (200, None)
        assert await ask(body(CHAT, "1".rjust(5000))) == (200, None)


async def test_a_large_request_is_refused_where_a_processor_takes_none_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tg_base.server.processor.MAX_REQUEST_BYTES", 0)
    async with open_gateway(GatewayConfig(port=0, drain=0.05)) as it:
        async with it.http.post(CHAT, data=BytesIO(body(CHAT, LARGE_TEXT))) as response:
            assert response.status == 413
            assert (await response.json())["error"]["code"] == "request_too_large"
        assert it.llm.requests == []


async def test_a_large_conversation_reaches_the_provider_as_it_was(
    openai_server: OpenAiServer, open_openai: Open
) -> None:
    said = [f"é\n{number}" for number in range(MANY)]
    turns = [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(said)]
    # Several answers are as many requests to a provider that cannot give them.
    provider = await open_openai(without=frozenset({"n"}))
    provider.model = "counting"
    async with open_gateway(instead=provider) as it:
        for n in (1, 2):
            asked = {"model": "counting", "messages": turns, "stream": True, "top_p": 0.5, "n": n}
            async with it.http.post(CHAT, json=asked) as response:
                assert response.status == 200, await response.text()
                assert "Hello" in await response.text()
    assert len(openai_server.exchanges) == 3
    for exchange in openai_server.exchanges:
        assert exchange.body is not None
        assert [turn.content for turn in exchange.body.messages] == said
        assert exchange.body.top_p == 0.5


async def test_a_large_body_is_refused_in_the_shape_of_its_door() -> None:
    turns = [*({"role": "user", "content": PADDING},) * MANY, {"role": "nobody", "content": "?"}]
    async with open_gateway() as it:
        async with it.http.post(CHAT, json={"model": "counting", "messages": turns}) as response:
            assert (response.status, (await response.json())["error"]["param"]) == (400, f"messages[{MANY}].role")
        async with it.http.post(MESSAGES, json={"model": "counting", "messages": turns, "max_tokens": 1}) as response:
            assert (response.status, (await response.json())["error"]["type"]) == (400, "invalid_request_error")
        async with it.http.post(RESPONSES, json={"model": "counting", "input": turns}) as response:
            assert (response.status, (await response.json())["error"]["param"]) == (400, f"input[{MANY}].role")


@pytest.mark.parametrize("path", ["/tokenize", "/invocations", "/generate"])
async def test_what_fails_after_it_was_read_is_told_in_the_form_of_its_body(path: str) -> None:
    told = []
    async with open_gateway(llm=FailingLlm()) as it:
        for text in ("1", "1".rjust(MAX_READ_HERE_BYTES)):
            async with it.http.post(
                path, data=BytesIO(json.dumps({"model": "counting", "inputs": text}).encode())
            ) as said:
                told.append((said.status, await said.json()))
    assert told[0] == told[1]
    assert told[0][0] >= 400


async def test_a_large_body_goes_on_from_a_response_that_is_kept() -> None:
    items = ({"role": "user", "content": PADDING},) * MANY
    asked = {"model": "counting", "input": items, "store": True, "unheard_of": 1}
    async with open_gateway() as it:
        async with it.http.post(RESPONSES, json=asked) as response:
            first = await response.json()
            assert response.headers["X-Tokengrid-Ignored"] == "unheard_of"
        async with it.http.post(RESPONSES, json=asked | {"previous_response_id": first["id"]}) as response:
            assert response.status == 200, await response.text()
        assert [len(request.messages) for request in it.llm.requests] == [MANY, 2 * MANY]
        async with it.http.post(RESPONSES, json=asked | {"previous_response_id": "resp_none"}) as response:
            assert (await response.json())["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_large_answer_is_written_in_slices(monkeypatch: pytest.MonkeyPatch, *, streaming: bool) -> None:
    tool = {"type": "function", "name": "look", "description": "x" * 5_000_000}
    asked = json.dumps({"model": "counting", "input": "1", "tools": [tool], "stream": streaming}).encode()
    written: list[int] = []
    async with open_gateway(GatewayConfig(port=0, drain=0.05)) as it:
        async with raw_connection(it.address) as raw:
            transport = type(raw.writer.transport)
        write, write_lines = transport.write, transport.writelines

        def spy(self: asyncio.WriteTransport, data: bytes | memoryview) -> None:
            written.append(len(data))
            write(self, data)

        def spy_lines(self: asyncio.WriteTransport, lines: list[bytes | memoryview]) -> None:
            written.append(sum(map(len, lines)))
            write_lines(self, lines)

        # The one place where client and gateway write; they share the process, and the client sends in pieces.
        monkeypatch.setattr(transport, "write", spy)
        monkeypatch.setattr(transport, "writelines", spy_lines)
        async with it.http.post(RESPONSES, data=BytesIO(asked)) as response:
            assert response.status == 200
            told = await response.read()
    assert len(written) > 10
    assert told.count(tool["description"].encode()) == (3 if streaming else 1)
    assert max(written) <= MAX_WRITE_BYTES + 1000, "a slice, with a head before the first"


def count_ended() -> float:
    """Requests that have ended, the last byte of their answer or its cut included."""
    (metric,) = [metric for metric in REGISTRY.collect() if metric.name == "tg_gateway_requests"]
    return sum(sample.value for sample in metric.samples if sample.name == "tg_gateway_requests_total")


@pytest.mark.parametrize("streaming", [False, True])
async def test_who_does_not_read_a_large_answer_is_cut(*, streaming: bool) -> None:
    tool = {"type": "function", "name": "look", "description": "x" * 10_000_000}
    asked = json.dumps({"model": "counting", "input": "1", "tools": [tool], "stream": streaming}).encode()
    async with open_gateway(limits=Limits(write=0.1)) as it, raw_connection(it.address) as raw:
        ended = count_ended()
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        raw.post(RESPONSES, asked)
        # What the system still holds for it comes, and then no more.
        await until(lambda: count_ended() > ended)
        raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            assert len(await raw.reader.read()) < len(tool["description"])
