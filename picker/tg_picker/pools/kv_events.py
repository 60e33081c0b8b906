"""A server's message -> the events of its KV cache: the formats of vLLM and SGLang, by name and by position."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

Hash = int | bytes


class BlocksStored(Struct, tag="BlockStored"):
    """Blocks that follow each other are in the cache.

    The fields are in vLLM's order, since older servers send them without names. Fields that differ between kinds of
    servers accept any type. Fields that are not known are ignored.

    Attributes:
        block_hashes: the hashes of the blocks.
        parent_block_hash: the hash of the block before them; None = they begin a prompt.
        token_ids: the token ids of all blocks.
        block_size: tokens in each.
        lora_id: shows that an adapter counts if it is not named.
        medium: the memory that they are in; None = the GPU's.
        lora_name: the adapter; None = the base model.
        extra_keys: what each block depends on beside its tokens; None = nothing.
        group_idx: which layers have it, in a model whose layers differ; None = all.
        kv_cache_spec_kind: how these layers attend.
        kv_cache_spec_sliding_window: how far they look back; None = to the beginning.
        cache_salt: SGLang's; vLLM's is the last of the first block's `extra_keys`.
    """

    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: Any = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: Any = None
    kv_cache_spec_sliding_window: Any = None
    cache_salt: Any = None


class BlocksRemoved(Struct, tag="BlockRemoved"):
    """Blocks have left a memory."""

    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: int | None = None


class AllCleared(Struct, tag="AllBlocksCleared"):
    """The cache is empty."""


class _StoredRow(BlocksStored, tag="BlockStored", array_like=True):
    pass


class _RemovedRow(BlocksRemoved, tag="BlockRemoved", array_like=True):
    pass


class _ClearedRow(AllCleared, tag="AllBlocksCleared", array_like=True):
    pass


KvEvent = BlocksStored | BlocksRemoved | AllCleared


class _Named(Struct):
    ts: float
    events: list[Raw]


class _Row(_Named, array_like=True):
    pass


_BATCHES: Any = msgspec.msgpack.Decoder(_Named), msgspec.msgpack.Decoder(_Row)
_EVENTS: Any = msgspec.msgpack.Decoder(KvEvent), msgspec.msgpack.Decoder(_StoredRow | _RemovedRow | _ClearedRow)
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


def read_kv_events(payload: bytes) -> tuple[list[KvEvent], int] | None:
    """Read the last part of a message.

    Returns:
        The events in their order, and how many more there are, of a kind or shape that is not known. None: it is no
        batch of events.
    """
    try:
        batch = _BATCHES[_is_row(payload)].decode(payload)
    except _UNREADABLE:
        return None
    events: list[KvEvent] = []
    for raw in batch.events:
        try:
            events.append(_EVENTS[_is_row(memoryview(raw)[:1])].decode(raw))
        except _UNREADABLE:
            continue
    return events, len(batch.events) - len(events)


def _is_row(data: bytes | memoryview) -> bool:
    """Whether msgpack has values without names here."""
    return bool(data) and (data[0] & 0xF0 == 0x90 or data[0] in {0xDC, 0xDD})
