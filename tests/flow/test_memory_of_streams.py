"""What requests hold in memory: an open stream little, and a request that has ended nothing."""

import asyncio
import gc
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import uvloop
from typing_extensions import override

from bench.load_client import handshake, make_request, masked, post
from tests.door_matrix.stage import Stage, open_stage
from tests.fakes.counting_llm import CountingLlm, SteppedLlm
from tests.fakes.held_answers import held_answers
from tests.flow.open_gateway import Opened, open_gateway
from tests.until import until
from tg_base.client.asked_stream import AskedStream
from tg_base.config import GatewayConfig
from tg_base.llm import LlmChunk, LlmService
from tg_base.protocol import HeartbeatTiming
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_gateway.dialects import Call
from tg_schema import TextCompletionRequest, encode
from tg_schema.errors import BadRequest

MODEL = "bench"
WARMING = 100
"""Streams that are open before it is measured: what the process allocates once for its first streams is there then."""
STREAMS = 100
KIB = 1024
LONG_PROMPT = "What is a topic? " * 1000
"""17 KB: less than what makes a request large."""


async def connect(it: Stage, first: bytes) -> socket.socket:
    """A client's connection that costs this process a descriptor, and little else."""
    client = socket.socket()
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, it.address)
    await loop.sock_sendall(client, first)
    return client


async def until_said(client: socket.socket, said: bytes, times: int) -> None:
    """Read until something has come so often."""
    received = b""
    while received.count(said) < times:
        part = await asyncio.get_running_loop().sock_recv(client, 65536)
        assert part, received
        received += part


async def ask(it: Stage, door: str, prompt: str, streams: int) -> socket.socket:
    """Answers on one connection, which have begun and go on for ever."""
    path, body = make_request(door, prompt)
    path = path.replace("api/v1", f"api/v1/flow/{it.flow}/service")
    host = ":".join(map(str, it.address))
    if door == "sse":
        client = await connect(it, post(host, path, encode(body)))
    else:
        envelope = {"service": "text-completion", "flow": it.flow, "request": body}
        asked = [masked(encode({"id": str(number), **envelope})) for number in range(streams)]
        client = await connect(it, b"".join([handshake(host), masked(b'{"type":"auth","token":""}'), *asked]))
    await until_said(client, b"one ", streams)
    return client


@contextmanager
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


async def measure(service: LlmService, door: str, prompt: str, streams: int) -> float:
    """Bytes that a stream holds, where each connection has so many."""
    # The early ones are traced too. If they take long, their timers fire meanwhile: what each then holds instead of its
    # timer of before would be counted, and the timer of before would not.
    async with open_stage(provider=service) as it:
        with traced():
            early = [await ask(it, door, prompt, streams) for _ in range(-(-WARMING // streams))]
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            clients = [await ask(it, door, prompt, streams) for _ in range(-(-STREAMS // streams))]
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
        for client in early + clients:
            client.close()
    return held / (streams * len(clients))


@pytest.mark.parametrize(
    ("door", "prompt", "streams", "limit"),
    [
        ("sse", "Go on.", 1, 29 * KIB),
        # Nobody is asked again once an answer has begun: its prompt is no part of what it holds.
        ("sse", LONG_PROMPT, 1, 29 * KIB),
        ("websocket", "Go on.", 1, 37 * KIB),
        ("websocket", LONG_PROMPT, 64, 19 * KIB),
    ],
    ids=["sse", "sse-long", "websocket", "websocket-64-long"],
)
def test_a_stream_holds_little(door: str, prompt: str, streams: int, limit: int) -> None:
    async def check() -> float:
        options = OpenAiOptions(base_url=url, key_variable="", capacity=4 * STREAMS)
        return await measure(await OpenAiCompatible.open(MODEL, options), door, prompt, streams)

    with held_answers(MODEL) as url:
        held = uvloop.run(check())
    assert held < limit, f"{held / KIB:.1f} KiB"


CHAT = "/v1/chat/completions"
SOON = GatewayConfig(port=0, drain=0.05, keep_alive=0.05)
"""A stream that has no token yet begins with a comment, after as many seconds of silence."""


class _Refusing(CountingLlm):
    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncIterator[LlmChunk]:  # type: ignore[override]
        raise BadRequest("not this one")
        yield LlmChunk()


def body(words: int, *, streaming: bool) -> bytes:
    turns = [{"role": "user", "content": str(words)}]
    return json.dumps({"model": "counting", "messages": turns, "stream": streaming}).encode()


def find_kept() -> list[object]:
    return [each for each in gc.get_objects() if isinstance(each, AskedStream | Call | TextCompletionRequest)]


@asynccontextmanager
async def opened_without_collector(llm: CountingLlm, timing: HeartbeatTiming | None = None) -> AsyncIterator[Opened]:
    async with open_gateway(SOON, llm=llm, timing=timing) as it:
        gc.collect()
        # What there is so far is not looked at again and again: all that is found below has come since.
        gc.freeze()
        gc.disable()
        try:
            yield it
            llm.requests.clear()
            await until(lambda: not find_kept())
        finally:
            gc.enable()


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("kind", [CountingLlm, _Refusing])
async def test_a_request_is_freed_with_its_answer(kind: type[CountingLlm], *, streaming: bool) -> None:
    async with opened_without_collector(kind()) as it:
        for _ in range(2):
            data = body(3, streaming=streaming)
            async with it.http.post(CHAT, data=data, headers={"Connection": "close"}) as response:
                await response.read()
                assert response.status == (400 if kind is _Refusing else 200)


async def test_a_request_is_freed_that_heartbeats_and_checks_have_seen() -> None:
    llm = SteppedLlm()
    async with (
        opened_without_collector(llm, HeartbeatTiming(interval=0.02)) as it,
        it.http.post(CHAT, data=body(1, streaming=True), headers={"Connection": "close"}) as response,
    ):
        await llm.started.wait()
        await asyncio.sleep(0.1)
        llm.step.release()
        await response.read()
