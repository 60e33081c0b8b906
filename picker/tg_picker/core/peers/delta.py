"""Scheduler <-> bus: the short messages by which schedulers share their placements.

A message is a MessagePack array that begins with its kind. Add new fields only at the end: readers ignore fields that
they do not know.
"""

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from tg_picker.core.interface import HASH_BITS
from tg_picker.core.state import MAX_ADAPTERS, MAX_BLOCKS

MAX_DELTA_BYTES = 1024 * 1024
"""Largest message, in bytes. Reading one of this size already takes a tenth of a second of the event loop."""
MAX_PLACED = 10_000
"""Most requests of one message, and of one scheduler at a time."""
MAX_TOKENS = 100_000_000
TICKS_PER_SECOND = 10_000
MAX_TICKS = 3_600 * TICKS_PER_SECOND
MAX_NAME = 512
"""Most characters of a server's address or an adapter's name."""
_BLOCK_BYTES = 8

Number = Annotated[int, Meta(ge=0, le=2**62)]
Tokens = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
Name = Annotated[str, Meta(max_length=MAX_NAME)]
Ticks = Annotated[int, Meta(ge=0, le=MAX_TICKS)]
At = Annotated[int, Meta(ge=0, le=2 * MAX_PLACED)]
Block = Annotated[int, Meta(ge=0, lt=2**HASH_BITS)]
Blocks = Annotated[bytes, Meta(max_length=MAX_BLOCKS * _BLOCK_BYTES)]


class Placed(Struct, frozen=True, array_like=True, gc=False):
    """A request on a server.

    Attributes:
        number: the number that its scheduler gave it.
        server: the index of the server's address in the message's names.
        adapter: the index of the adapter's name; None = no adapter.
        prompt_tokens: tokens of the prompt.
        uncached_tokens: tokens of the prompt that the server has to compute.
        expected_tokens: expected tokens of the answer.
        started: whether the answer has begun.
        last: the last of the prompt's blocks that the server had; None = none. In a snapshot: a block near the end.
        behind: the blocks after `last`, packed.
        room: tokens of the prompt that no other request on the server used.
    """

    number: Number
    server: At
    adapter: At | None
    prompt_tokens: Tokens
    uncached_tokens: Tokens
    expected_tokens: Tokens
    started: bool = False
    last: Block | None = None
    behind: Blocks = b""
    room: Tokens = 0


Event: TypeAlias = tuple[Number, Tokens, Ticks]
"""A request's number, its measured tokens, and its time in ticks; 0 ticks if nothing was measured."""


class Batch(Struct, frozen=True, array_like=True, tag=0):
    """What a scheduler did since its previous batch.

    Attributes:
        origin: the number of the scheduler.
        seq: the batch's number, counted from 0 without gaps.
        names: names of servers and adapters, to which the other fields refer by index.
        placed: requests that were placed.
        started: requests whose answers have begun.
        ended: requests that have ended.
        lacking: servers that lack an adapter, each by the indices of its address and of the adapter.
    """

    origin: Number
    seq: Number
    names: Annotated[list[Name], Meta(max_length=2 * MAX_PLACED)]
    placed: Annotated[list[Placed], Meta(max_length=MAX_PLACED)] = []
    started: Annotated[list[Event], Meta(max_length=MAX_PLACED)] = []
    ended: Annotated[list[Event], Meta(max_length=MAX_PLACED)] = []
    lacking: Annotated[list[tuple[At, At]], Meta(max_length=MAX_PLACED)] = []


class Heartbeat(Struct, frozen=True, array_like=True, tag=1):
    """A scheduler is alive. `seq` is the number of its next batch."""

    origin: Number
    seq: Number


class Ask(Struct, frozen=True, array_like=True, tag=2):
    """Asks `target` for a snapshot; with `all_known` also for everything that it knows of the servers."""

    origin: Number
    target: Number
    all_known: bool = False


class Snapshot(Struct, frozen=True, array_like=True, tag=3):
    """All requests of a scheduler that have not ended, in the state before its batch `seq`."""

    origin: Number
    seq: Number
    names: Annotated[list[Name], Meta(max_length=2 * MAX_PLACED)]
    placed: Annotated[list[Placed], Meta(max_length=MAX_PLACED)] = []


class Want(Struct, frozen=True, array_like=True, tag=4):
    """Asks `target` for a block of a server and all blocks before it."""

    origin: Number
    target: Number
    server: Name
    block: Block


class Known(Struct, frozen=True, array_like=True, tag=5):
    """What a server probably has in its cache.

    Attributes:
        origin: the scheduler that knows it.
        server: the server's address.
        adapters: the loaded adapters, the least recently used first.
        chains: packed blocks of prompts, each chain with the block before its first; the least recently used first.
        whole: whether the message is a part of the answer to `all_known`.
    """

    origin: Number
    server: Name
    adapters: Annotated[list[Name], Meta(max_length=MAX_ADAPTERS)] = []
    chains: Annotated[list[tuple[Block | None, Blocks]], Meta(max_length=MAX_BLOCKS)] = []
    whole: bool = False


Delta: TypeAlias = Batch | Heartbeat | Ask | Snapshot | Want | Known

_DECODER = msgspec.msgpack.Decoder[Delta](Delta)
encode_delta = msgspec.msgpack.Encoder().encode
"""Encodes a message."""


class BadDelta(ValueError):
    """The bytes are not a valid message."""


def decode_delta(body: bytes) -> Delta:
    """Read and validate a message: every index refers to a name, and every number is in its range.

    Raises:
        BadDelta: it is not valid.
    """
    if len(body) > MAX_DELTA_BYTES:
        raise BadDelta("too long")
    try:
        delta: Delta = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadDelta("not a message") from None
    if isinstance(delta, Batch | Snapshot):
        _check_names(delta)
        packed: list[bytes] = [each.behind for each in delta.placed]
    else:
        packed = [blocks for _, blocks in delta.chains] if isinstance(delta, Known) else []
    for blocks in packed:
        if len(blocks) % _BLOCK_BYTES or any(block >> HASH_BITS for block in unpack_blocks(blocks)):
            raise BadDelta("not blocks")
    return delta


def is_sendable(name: str) -> bool:
    """Whether a name can be encoded. Clients choose adapters' names; half of a surrogate pair is not printable."""
    return len(name) <= MAX_NAME and name.isprintable()


def pack_blocks(blocks: Sequence[int]) -> bytes:
    """Blocks in 8 bytes each."""
    return array("Q", blocks).tobytes()


def unpack_blocks(packed: bytes) -> Sequence[int]:
    """The blocks of `pack_blocks`."""
    blocks = array("Q")
    blocks.frombytes(packed)
    return blocks.tolist()


def _check_names(delta: Batch | Snapshot) -> None:
    used = [each.server for each in delta.placed]
    used += [each.adapter for each in delta.placed if each.adapter is not None]
    if isinstance(delta, Batch):
        used += chain.from_iterable(delta.lacking)
    if used and max(used) >= len(delta.names):
        raise BadDelta("no such name")
