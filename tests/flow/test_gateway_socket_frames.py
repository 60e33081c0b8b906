"""The WebSocket below its envelopes: frames of any bytes, heartbeats, and a client that does not read."""

import asyncio
import json

from aiohttp import WSMsgType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from tests.fakes.wordy_llm import WordyLlm
from tests.flow.open_gateway import open_gateway
from tests.flow.raw_http import raw_connection
from tests.flow.socket_frames import PATH, answer, ask, frame, masked, upgrade, whole
from tg_base.config import GatewayConfig
from tg_gateway.access import Limits


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
