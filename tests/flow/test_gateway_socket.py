"""The WebSocket: envelopes, many streams on one socket, everything that can be wrong with a message, every end."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from tests.fakes.failing_llm import FailingLlm
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.flow.socket_frames import PATH, Frame, answer, ask, frame, masked, upgrade, whole
from tests.within import within
from tg_base.config import GatewayConfig
from tg_gateway.access import Limits


@pytest.fixture
async def it() -> AsyncIterator[Opened]:
    async with open_gateway() as opened:
        yield opened


@pytest.fixture
async def socket(it: Opened) -> AsyncIterator[ClientWebSocketResponse]:
    async with it.http.ws_connect(PATH) as opened:
        yield opened


async def test_the_auth_frame_is_answered_without_auth_too(socket: ClientWebSocketResponse) -> None:
    ok = {"type": "auth-ok", "default_workspace": "default"}
    assert await answer(socket, {"type": "auth", "token": ""}) == ok
    assert await answer(socket, {"type": "auth", "token": "tg_anything"}) == ok


async def test_a_stream(it: Opened, socket: ClientWebSocketResponse) -> None:
    it.llm.step = asyncio.Semaphore(1)
    await socket.send_str(json.dumps(ask("req-1", 2, streaming=True) | {"workspace": "default"}))
    first = {"response": "0 ", "model": "counting", "end_of_stream": False}
    assert (await socket.receive()).data == json.dumps(
        {"id": "req-1", "response": first, "complete": False}, separators=(",", ":")
    )
    it.llm.step.release()
    last = (await whole(socket))[-1]
    assert last["complete"] is True
    assert last["response"] | {"response": ""} == {
        "response": "",
        "in_token": 7,
        "out_token": 2,
        "model": "counting",
        "end_of_stream": True,
        "finish_reason": "stop",
    }


async def test_a_whole_answer_is_one_frame(socket: ClientWebSocketResponse) -> None:
    (only,) = await whole(socket, await answer(socket, ask(7, 2)))
    assert (only["id"], only["response"]["response"], only["complete"]) == (7, "0 1 ", True)


async def test_a_prompt(socket: ClientWebSocketResponse) -> None:
    request = {"id": "text", "variables": {"a": "x"}, "streaming": True}
    frames = await whole(socket, await answer(socket, {"id": "r", "service": "prompt", "request": request}))
    assert "".join(one["response"]["text"] for one in frames) == 'a="x" '
    request = {"id": "object", "variables": {"a": 1}}
    (only,) = await whole(socket, await answer(socket, {"id": "r", "service": "prompt", "request": request}))
    assert only["response"] == {"object": '{"a":"1"}', "end_of_stream": True, "model": "echo"}


async def test_an_error_in_mid_stream_stands_in_the_envelope() -> None:
    async with open_gateway(llm=FailingLlm()) as it, it.http.ws_connect(PATH) as socket:
        frames = await whole(socket, await answer(socket, ask("a", 2, streaming=True)))
        assert "".join(one["response"]["response"] for one in frames[:-1]) == "0 1 "
        assert set(frames[-1]) == {"id", "error", "complete"}
        assert frames[-1]["error"]["type"] == "incomplete-stream"
        assert set(frames[-1]["error"]) == {"message", "type"}


@pytest.mark.parametrize(
    ("message", "name", "kind"),
    [
        ("", None, "bad-request"),
        ("{", None, "bad-request"),
        ("null", None, "bad-request"),
        ("[]", None, "bad-request"),
        (b"\x00\xff\xfe", None, "bad-request"),
        ("[" * 100_000, None, "bad-request"),
        ('{"id":"a","request":' + "[" * 100_000, "a", "bad-request"),
        ('{"id":"a","service":"text-completion","request":{"prompt":NaN}}', None, "bad-request"),
        (b'{"id":"a","service":"text-completion","request":{"prompt":"\xff"}}', "a", "bad-request"),
        ({}, None, "bad-request"),
        ({"service": "text-completion", "request": {"prompt": "1"}}, None, "bad-request"),
        ({"id": {}, "service": "text-completion", "request": {}}, None, "bad-request"),
        ({"id": True, "service": "text-completion", "request": {}}, None, "bad-request"),
        ({"id": 1.5, "service": "text-completion", "request": {}}, None, "bad-request"),
        ({"id": "a" * 257, "service": "text-completion", "request": {"prompt": "1"}}, None, "bad-request"),
        ({"id": "a"}, "a", "bad-request"),
        ({"id": "a", "request": {}}, "a", "bad-request"),
        ({"id": "a", "service": "prompt"}, "a", "bad-request"),
        ({"id": "a", "service": 7, "request": {}}, "a", "bad-request"),
        ({"id": "a", "service": "prompt", "request": None}, "a", "bad-request"),
        ({"id": "a", "service": "prompt", "request": "x"}, "a", "bad-request"),
        ({"id": "a", "service": "text-completion", "request": {}}, "a", "bad-request"),
        ({"id": "a", "service": "no", "flow": "default", "request": {}}, "a", "not-found"),
        ({"id": "a", "service": "prompt", "flow": "no", "request": {}}, "a", "not-found"),
        ({"id": "a", "service": "flow", "request": {"operation": "delete-flow"}}, "a", "bad-request"),
        ({"id": "a", "service": "flow", "request": {"operation": "get-flow", "flow-id": "x"}}, "a", "not-found"),
    ],
)
async def test_what_is_refused_disturbs_nobody(
    it: Opened, socket: ClientWebSocketResponse, message: Any, name: str | None, kind: str
) -> None:
    it.llm.step = asyncio.Semaphore(1)
    running = await answer(socket, ask("running", 1, streaming=True))
    error = await answer(socket, message)
    if not running["complete"]:
        running = (await whole(socket))[-1]
    assert (error.get("id"), error["error"]["type"], error["complete"]) == (name, kind, True)
    assert error["error"]["message"]
    assert running["response"]["end_of_stream"] is True


@pytest.mark.parametrize(
    "second",
    [
        ask("a", 1),
        ask("a", 1, service="no"),
        {"id": "a"},
        {"id": "a", "service": 7},
        {"id": "a", "service": "flow", "request": {"operation": "list-flows"}},
    ],
)
async def test_an_id_may_not_run_twice(it: Opened, socket: ClientWebSocketResponse, second: Frame) -> None:
    it.llm.step = asyncio.Semaphore(1)
    await answer(socket, ask("a", 2, streaming=True))
    refused = await answer(socket, second)
    assert (refused.get("id"), refused["error"]["type"], refused["complete"]) == (None, "bad-request", False)
    assert '"a"' in refused["error"]["message"]
    it.llm.step.release()
    assert (await whole(socket))[-1]["response"]["out_token"] == 2
    it.llm.step.release()
    assert (await answer(socket, ask("a", 1)))["complete"] is True


@pytest.mark.parametrize("tokens", [0, 1])
async def test_a_stream_can_be_cancelled_alone(it: Opened, socket: ClientWebSocketResponse, tokens: int) -> None:
    it.llm.step = asyncio.Semaphore(tokens)
    await socket.send_str(json.dumps(ask("a", 1000, streaming=True)))
    await it.llm.started.wait()
    for _ in range(tokens):
        await frame(socket)
    error = await answer(socket, {"id": "a", "cancel": True})
    assert (error["id"], error["error"]["type"], error["complete"]) == ("a", "cancelled", True)
    await within(1, it.llm.stopped.wait())
    assert it.llm.generated == tokens
    it.llm.step = None
    assert (await answer(socket, ask("a", 1)))["response"]["response"] == "0 "


async def test_a_cancel_right_behind_its_request(it: Opened, socket: ClientWebSocketResponse) -> None:
    request = (
        json.dumps(ask("a", 1000)),
        json.dumps({"id": "a", "cancel": True}),
        json.dumps({"id": "b", "cancel": True}),
    )
    it.llm.step = asyncio.Semaphore(0)
    for message in request:
        await socket.send_str(message)
    assert (await frame(socket))["error"]["type"] == "cancelled"
    it.llm.step = None
    assert (await answer(socket, ask("a", 1)))["complete"] is True


async def test_a_client_that_leaves_stops_all_its_streams(it: Opened) -> None:
    it.llm.step = asyncio.Semaphore(0)
    async with raw_connection(it.address) as raw:
        await upgrade(raw)
        for name in ("a", "b", "c"):
            raw.send(masked(json.dumps(ask(name, 1000, streaming=name != "b")).encode()))
        while len(it.llm.requests) < 3:
            it.llm.started.clear()
            await it.llm.started.wait()
        raw.writer.transport.abort()
        await within(1, it.llm.stopped.wait())
    assert it.llm.generated == 0


async def test_a_close_stops_all_its_streams(it: Opened, socket: ClientWebSocketResponse) -> None:
    it.llm.step = asyncio.Semaphore(1)
    await answer(socket, ask("a", 1000, streaming=True))
    await socket.close()
    await within(1, it.llm.stopped.wait())
    assert it.llm.generated == 1


async def test_two_hundred_streams_on_one_socket_keep_their_words(socket: ClientWebSocketResponse) -> None:
    expected = "".join(f"{number} " for number in range(50))
    for name in range(200):
        await socket.send_str(json.dumps(ask(name, 50, streaming=True)))
    texts: defaultdict[int, str] = defaultdict(str)
    complete: set[int] = set()
    while len(complete) < 200:
        one = await frame(socket)
        assert one["id"] not in complete
        texts[one["id"]] += one["response"]["response"]
        if one["complete"]:
            complete.add(one["id"])
    assert set(texts.values()) == {expected}


async def test_too_many_streams_on_one_socket() -> None:
    async with open_gateway(limits=Limits(socket_streams=2)) as it, it.http.ws_connect(PATH) as socket:
        it.llm.step = asyncio.Semaphore(0)
        for name in ("a", "b"):
            await socket.send_str(json.dumps(ask(name, 1)))
        assert (await answer(socket, ask("c", 1)))["error"]["type"] == "rate-limited"
        it.llm.step.release()
        assert (await frame(socket))["complete"] is True
        await socket.send_str(json.dumps(ask("c", 1)))
        it.llm.step.release()
        it.llm.step.release()
        assert {(await frame(socket))["response"]["response"] for _ in range(2)} == {"0 "}


async def test_too_many_sockets() -> None:
    async with open_gateway(limits=Limits(sockets=1)) as it, it.http.ws_connect(PATH) as socket:
        with pytest.raises(WSServerHandshakeError) as refused:
            await it.http.ws_connect(PATH)
        assert refused.value.status == 503
        assert (await answer(socket, ask("a", 1)))["complete"] is True


async def test_frames_of_any_size_are_read_whole(socket: ClientWebSocketResponse) -> None:
    async def size(letters: int) -> int:
        request = {"id": "text", "terms": {"a": "x" * letters}}
        await socket.send_str(json.dumps({"id": 1, "service": "prompt", "request": request}))
        message = await socket.receive(timeout=5)
        assert json.loads(message.data)["response"]["text"] == f"a={'x' * letters} "
        return len(message.data)

    around = await size(0)
    assert around < 125
    for wanted in (125, 126, 127, 65535, 65536, 70000):
        assert await size(wanted - around) == wanted


async def test_flows_are_shown(socket: ClientWebSocketResponse) -> None:
    listed = await answer(socket, {"id": 1, "service": "flow", "request": {"operation": "list-flows"}})
    assert (listed["response"]["flow-ids"], listed["complete"]) == (["default"], True)
    request = {"operation": "get-flow", "flow-id": "default"}
    flow = json.loads((await answer(socket, {"id": 2, "service": "flow", "request": request}))["response"]["flow"])
    assert set(flow["interfaces"]) == {"text-completion", "prompt"}
    request = {"operation": "list", "type": "interface-description"}
    config = await answer(socket, {"id": 3, "service": "config", "request": request})
    assert config["response"] == {"version": 0, "values": [], "directory": [], "config": {}}


async def test_a_message_over_the_limit_ends_the_socket_with_a_word_to_all() -> None:
    async with open_gateway(GatewayConfig(port=0, body_limit=1000)) as it, it.http.ws_connect(PATH) as socket:
        it.llm.step = asyncio.Semaphore(1)
        await answer(socket, ask("a", 2, streaming=True))
        assert (await answer(socket, ask("b", "1" * 2000)))["error"]["type"] == "too-large"
        error = await answer(socket, "x" * 5000)
        assert (error["id"], error["complete"]) == ("a", True)
        assert error["error"]["type"] == "unavailable"
        assert (await socket.receive()).type is WSMsgType.CLOSE
        assert socket.close_code == 1009
        await within(1, it.llm.stopped.wait())


async def test_draining_ends_every_stream_and_then_the_socket(it: Opened, socket: ClientWebSocketResponse) -> None:
    it.llm.step = asyncio.Semaphore(1)
    await answer(socket, ask("a", 2, streaming=True))
    leaving = asyncio.create_task(it.gateway.__aexit__(None, None, None))
    await asyncio.sleep(0)
    assert (await answer(socket, ask("b", 1)))["error"]["type"] == "unavailable"
    error = await frame(socket)
    assert (error["id"], error["error"]["type"]) == ("a", "unavailable")
    message = await socket.receive()
    assert (message.type, message.data) == (WSMsgType.CLOSE, 1001)
    await leaving
