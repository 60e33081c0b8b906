"""The WebSocket: envelopes, frames of any bytes, many streams on one socket, all that can be wrong, every end."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from tests.fakes.wordy_llm import WordyLlm
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.flow.socket_frames import PATH, Frame, answer, ask, frame, masked, upgrade, whole
from tests.within import within
from tg_base.config import GatewayConfig
from tg_gateway.access import Limits


@pytest.fixture
async def socket(it: Opened) -> AsyncIterator[ClientWebSocketResponse]:
    async with it.http.ws_connect(PATH) as opened:
        yield opened


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


async def test_no_interface_has_a_description(socket: ClientWebSocketResponse) -> None:
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


async def test_heartbeat() -> None:
    async with (
        open_gateway(GatewayConfig(port=0, keep_alive=0.05)) as quick,
        quick.http.ws_connect(PATH, autoping=False) as socket,
    ):
        assert (await socket.receive(timeout=5)).type is WSMsgType.PING
        assert (await socket.receive(timeout=5)).type in {WSMsgType.CLOSE, WSMsgType.CLOSED}


async def test_compression_is_not_taken() -> None:
    async with open_gateway() as it, raw_connection(it.address) as raw:
        head = await upgrade(raw, "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"deflate" not in head
        raw.send(masked(b"x" * 20, first=0xC1))
        assert (await raw.rest())[:1] == b"\x88"


async def test_a_client_that_does_not_read_is_cut_off_alone() -> None:
    # With less, both streams would end for what they hold, and the socket only with an unanswered ping.
    limits = Limits(write=0.2, socket_bytes=1024 * 1024 * 1024)
    async with open_gateway(limits=limits, llm=WordyLlm()) as it, raw_connection(it.address) as raw:
        await upgrade(raw)
        for name in range(2):
            raw.send(masked(json.dumps(ask(name, 10_000_000, streaming=True)).encode()))
        async with it.http.ws_connect(PATH) as other:
            while REGISTRY.get_sample_value("tg_gateway_sockets") == 2:
                frames = await whole(other, await answer(other, ask("x", 20, streaming=True)))
                assert "error" not in frames[-1], frames[-1]
            assert it.llm.generated < 10_000_000


FRAME = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["id", "type", "token", "service", "flow", "request", "cancel", "prompt", "terms"]),
                inner | st.sampled_from(["auth", "text-completion", "prompt", "default", "flow"]),
                max_size=6,
            )
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode()),
)


async def test_any_bytes_in_a_frame_disturb_nobody() -> None:
    loop = asyncio.get_running_loop()
    sent: list[list[tuple[bytes, bool]]] = []

    @settings(max_examples=150, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(FRAME, st.booleans()), min_size=1, max_size=5))
    def collect(frames: list[tuple[bytes, bool]]) -> None:
        sent.append(frames)

    await loop.run_in_executor(None, collect)
    async with open_gateway() as it, it.http.ws_connect(PATH) as socket:
        for number, frames in enumerate(sent):
            for payload, binary in frames:
                await socket.send_frame(payload, WSMsgType.BINARY if binary else WSMsgType.TEXT)
            await socket.send_str(json.dumps(ask(f"good-{number}", 1)))
            while True:
                one = await frame(socket)
                assert one.keys() & {"type", "error", "response"}
                if one.get("id") == f"good-{number}":
                    assert one["response"]["response"] == "0 "
                    break
