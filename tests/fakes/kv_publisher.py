"""A model server's KV events over ZMQ, byte by byte as vLLM 0.33.0, SGLang 0.5.23 and older ones publish them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from msgspec import Struct

from tests.until import until

END = (-1).to_bytes(8, "big", signed=True)


class Event(Struct, omit_defaults=True, tag=True):
    """With names, as vLLM's since 0.24."""


class BlockStored(Event):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None
    lookahead_token_ids: list[list[int]] | None = None


class BlockRemoved(Event):
    block_hashes: list[int | bytes]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(Event):
    pass


class Batch(Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class SGLangBlockStored(Event, tag="BlockStored"):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    lora_name: str | None = None


def by_position(event: Any) -> list[Any]:
    """As before 0.24: the values in their order, without those at the end that are not set."""
    values = [type(event).__name__, *(getattr(event, name) for name in event.__struct_fields__)]
    while values[-1] is None:
        values.pop()
    return values


class KvPublisher:
    """One server, on loopback. Each prompt's blocks have hashes of this process alone.

    Attributes:
        size: tokens of a block.
        port, replay_port: where it listens; the same after a restart.
        kept: the messages that can be replayed.
        frames: between the address and the number of a replayed message: the topic, or none as before 0.26.
        positional: whether events have no names.
        room: how many messages of a replay its socket takes; the others are dropped, but every second time the last.
        silent: whether it takes questions and does not answer.
        asked: the numbers from which a replay was asked for.
        followers: how many follow now.
        followed: how often somebody began to.
    """

    def __init__(self, size: int = 16, kept: int = 10_000) -> None:
        self.size = size
        self.port = self.replay_port = 0
        self.kept: deque[tuple[int, bytes]] = deque(maxlen=kept)
        self.frames: tuple[bytes, ...] = (b"kv@pod@model",)
        self.positional = self.silent = False
        self.room = 10_000
        self.asked: list[int] = []
        self.followers = self.followed = 0
        self._numbers = count()
        self._lives = count(1)
        self._life = 0
        self._clock = count(1)
        self._context = zmq.asyncio.Context()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._life = next(self._lives)
        self._pub, self._router = self._context.socket(zmq.XPUB), self._context.socket(zmq.ROUTER)
        self._pub.xpub_verboser = True
        for socket in (self._pub, self._router):
            socket.linger = 0
        self.port = await self._bind(self._pub, self.port)
        self.replay_port = await self._bind(self._router, self.replay_port)
        self._tasks = [asyncio.create_task(self._count()), asyncio.create_task(self._answer())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._pub.close()
        self._router.close()
        self.followers = 0

    async def restart(self) -> None:
        """Another process in its place: an empty cache, other hashes, and it counts from 0."""
        await self.stop()
        self.kept.clear()
        self._numbers = count()
        await self.start()

    def hashes(self, tokens: Sequence[int], adapter: str | None = None) -> list[int | bytes]:
        ends = range(self.size, len(tokens) + 1, self.size)
        return [hash((self._life, adapter, *tokens[:end])).to_bytes(32, "big", signed=True) for end in ends]

    def stored(self, tokens: Sequence[int], had: int = 0, *, adapter: str | None = None, **more: Any) -> BlockStored:
        """The event of a prompt of whose blocks `had` are there."""
        hashes = self.hashes(tokens, adapter)
        new = list(tokens[had * self.size : len(hashes) * self.size])
        parent = hashes[had - 1] if had else None
        names = {"lora_id": 1 if adapter else None, "medium": "GPU", "lora_name": adapter, **more}
        return BlockStored(hashes[had:], parent, new, self.size, **names)

    def removed(self, tokens: Sequence[int], left: int = 0, **more: Any) -> BlockRemoved:
        return BlockRemoved(self.hashes(tokens)[left:], **{"medium": "GPU", **more})

    async def tell(self, *events: Any, lost: bool = False) -> None:
        """Publish a batch. A lost one is only kept."""
        shown = [by_position(each) if self.positional else each for each in events]
        await self.tell_raw(msgspec.msgpack.encode(Batch(float(next(self._clock)), shown, 0)), lost=lost)

    async def tell_raw(self, payload: bytes, *, lost: bool = False) -> None:
        seq = next(self._numbers)
        self.kept.append((seq, payload))
        if not lost:
            await self.send(b"kv@pod@model", seq.to_bytes(8, "big"), payload)

    async def send(self, *frames: bytes) -> None:
        await self._pub.send_multipart(frames)

    async def _bind(self, socket: zmq.asyncio.Socket, port: int) -> int:
        def bind() -> bool:
            # ZMQ closes a socket a moment later than it is told to.
            with suppress(zmq.ZMQError):
                socket.bind(f"tcp://127.0.0.1:{port or '*'}")
                return True
            return False

        await until(bind)
        return int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    async def _count(self) -> None:
        while True:
            begins = (await self._pub.recv())[:1] == b"\x01"
            self.followers += 1 if begins else -1
            self.followed += begins

    async def _answer(self) -> None:
        while True:
            client, _, start = await self._router.recv_multipart()
            self.asked.append(int.from_bytes(start, "big"))
            if self.silent:
                continue
            sent = [each for each in self.kept if each[0] >= self.asked[-1]]
            late = sent[self.room :][-1:] if len(self.asked) % 2 else []
            for seq, payload in (*sent[: self.room], *late):
                await self._router.send_multipart((client, b"", *self.frames, seq.to_bytes(8, "big"), payload))
            await self._router.send_multipart((client, b"", *(b"" for _ in self.frames), END, b""))


@asynccontextmanager
async def kv_publisher(size: int = 16, kept: int = 10_000) -> AsyncIterator[KvPublisher]:
    """A server that runs until the block is left."""
    publisher = KvPublisher(size, kept)
    await publisher.start()
    try:
        yield publisher
    finally:
        await publisher.stop()
        publisher._context.term()
