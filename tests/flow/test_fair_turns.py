"""Turns of the loop: a gateway full of streams that have more to say, and a socket full of work, answer who comes."""

import asyncio
import functools
import json
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator

import uvloop
from typing_extensions import override

from bench.load_client import make_request, post
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.parley import Parley
from tests.flow.open_gateway import MOUNTS, Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.flow.socket_frames import masked, upgrade
from tg_base.config import GatewayConfig
from tg_base.llm import LlmChunk
from tg_base.protocol.link_sender import MAX_WAITING_RECORDS
from tg_gateway.dialects import Conversation, Mount, Socket
from tg_gateway.websocket.handler import TAKING_SECONDS
from tg_schema import TextCompletionRequest

STREAMS = 8
NEWCOMERS = 128
MAX_TURNS = 40
"""Until the first byte of the last: a request takes 13, and 128 connections are accepted in four."""
WORD = "word "


class TirelessLlm(CountingLlm):
    """Never waits: asked "endless", it says a word for ever."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        while request.prompt == "endless":
            yield LlmChunk(WORD)
        yield LlmChunk("hello", in_token=1, out_token=1, finish_reason="stop")


class Turns:
    """Counts the turns of the running loop."""

    def __init__(self) -> None:
        self.number = 0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.number += 1
        self._next = self._loop.call_soon(self._turn)

    def close(self) -> None:
        self._next.cancel()


class Reader(asyncio.Protocol):
    """Counts in which turn how many words came."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.words: Counter[int] = Counter()
        self.first = asyncio.Event()

    @override
    def data_received(self, data: bytes) -> None:
        self.words[self._turns.number] += data.count(WORD.encode())
        self.first.set()


def asking(opened: Opened, prompt: str) -> socket.socket:
    """A connection that the system has completed, with a request in it. The gateway has not had a turn yet."""
    host, port = opened.address
    path, body = make_request("sse", prompt)
    connection = socket.create_connection((host, port))
    connection.sendall(post(host, path, json.dumps(body).encode()))
    connection.setblocking(False)
    return connection


def _itself(reader: Reader) -> Reader:
    return reader


async def open_streams(opened: Opened, turns: Turns) -> list[Reader]:
    """Streams that run, each with a reader that takes whatever comes."""
    loop = asyncio.get_running_loop()
    readers = [Reader(turns) for _ in range(STREAMS)]
    for reader in readers:
        await loop.create_connection(functools.partial(_itself, reader), sock=asking(opened, "endless"))
    for reader in readers:
        await reader.first.wait()
    return readers


async def measure() -> tuple[list[int], list[int]]:
    """For each newcomer the turns until its first byte; for each stream the most words that came in one turn."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(100), open_gateway(llm=TirelessLlm(), listed=True) as opened:
        turns = Turns()
        streams = await open_streams(opened, turns)
        newcomers = [asking(opened, "hello") for _ in range(NEWCOMERS)]
        begun = turns.number

        async def answered(connection: socket.socket) -> int:
            with connection:
                assert (await loop.sock_recv(connection, 12)).startswith(b"HTTP/1.1 200")
            return turns.number - begun

        needed = await asyncio.gather(*map(answered, newcomers))
        most = [max(stream.words.values()) for stream in streams]
        turns.close()
    return needed, most


def test_who_comes_is_answered_within_some_turns_however_many_come() -> None:
    """On the loop that processes run on; it would accept one connection in a turn."""
    needed, words = uvloop.run(measure())
    assert max(needed) <= MAX_TURNS, sorted(needed)
    # What a turn brings of one stream is bounded by what may wait of it.
    assert 0 < max(words) <= 2 * MAX_WAITING_RECORDS, words


MESSAGES = 20


class _Laborious(Parley, Conversation):
    """Takes longer for each message than a socket may have at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0
        self.done = asyncio.Event()

    @override
    def configure(self, config: GatewayConfig) -> "_Laborious":
        return self

    @override
    def converse(self, socket: Socket) -> Conversation:
        return self

    @override
    def take(self, message: bytes) -> None:
        time.sleep(TAKING_SECONDS * 1.1)
        self.taken += 1
        if self.taken == MESSAGES:
            self.done.set()


async def test_others_have_their_turns_between_the_messages_of_one_socket() -> None:
    laborious = _Laborious()
    mounts = (*MOUNTS, Mount("GET", "/laborious", laborious, "converse", socket=True))
    async with open_gateway(mounts=mounts) as it, raw_connection(it.address) as raw:
        await upgrade(raw, path="/laborious")
        raw.send(b"".join([masked(b"work")] * MESSAGES))
        seen = {0}
        while not laborious.done.is_set():
            await asyncio.sleep(0)
            seen.add(laborious.taken)
        assert seen == {*range(MESSAGES + 1)}
