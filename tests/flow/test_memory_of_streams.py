"""What an open stream holds in memory through all layers, from its client's connection to that of the provider."""

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvloop

from bench.load_client import handshake, make_request, masked, post
from tests.door_matrix.stage import Stage, open_stage
from tests.fakes.held_answers import held_answers
from tg_base.llm import LlmService
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_schema import encode

MODEL = "bench"
WARMING = 10
STREAMS = 100
KIB = 1024


async def connect(it: Stage, first: bytes) -> socket.socket:
    """A client's connection that costs this process a descriptor, and little else."""
    client = socket.socket()
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, it.address)
    await loop.sock_sendall(client, first)
    return client


async def until_said(client: socket.socket, said: bytes) -> None:
    """Read until something has come."""
    received = b""
    while said not in received:
        part = await asyncio.get_running_loop().sock_recv(client, 65536)
        assert part, received
        received = received[-64:] + part


async def ask(it: Stage, door: str) -> socket.socket:
    """An answer that has begun, and goes on for ever."""
    path, body = make_request(door, "Go on.")
    path = path.replace("api/v1", f"api/v1/flow/{it.flow}/service")
    host = ":".join(map(str, it.address))
    if door == "sse":
        client = await connect(it, post(host, path, encode(body)))
    else:
        envelope = {"id": "1", "service": "text-completion", "flow": it.flow, "request": body}
        client = await connect(it, handshake(host) + masked(b'{"type":"auth","token":""}') + masked(encode(envelope)))
    await until_said(client, b"one ")
    return client


@contextmanager
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


async def measure(service: LlmService, door: str) -> float:
    """Bytes that a stream holds."""
    async with open_stage(provider=service) as it:
        early = [await ask(it, door) for _ in range(WARMING)]
        with traced():
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            clients = [await ask(it, door) for _ in range(STREAMS)]
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
        for client in early + clients:
            client.close()
    return held / STREAMS


@pytest.mark.parametrize(("door", "limit"), [("sse", 41 * KIB), ("websocket", 48 * KIB)])
def test_a_stream_holds_little(door: str, limit: int) -> None:
    async def check() -> float:
        options = OpenAiOptions(base_url=url, key_variable="", capacity=2 * STREAMS)
        return await measure(await OpenAiCompatible.open(MODEL, options), door)

    with held_answers(MODEL) as url:
        held = uvloop.run(check())
    assert held < limit, f"{held / KIB:.1f} KiB"
