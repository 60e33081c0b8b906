"""A server's message -> the events of its KV cache, in the formats of vLLM and SGLang, with or without field names."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

MAX_HASH_BYTES: Final = 64
"""Longest hash of a block, because hashes are kept as long as their blocks. SHA-256 has 32 bytes."""
MAX_ITEMS: Final = 65_536
"""Most events of a message, and most blocks of an event, so that reading them does not block the event loop. A message
of 1 MiB cannot hold more events."""
MAX_TOKENS: Final = 4 * MAX_ITEMS
"""Most token ids of an event."""

Hash = int | Annotated[bytes, Meta(max_length=MAX_HASH_BYTES)]
Hashes = Annotated[list[Hash], Meta(max_length=MAX_ITEMS)]


class BlocksStored(Struct, tag="BlockStored"):
    """Consecutive blocks are in the cache.

    The fields are in vLLM's order, because older servers send them without names. Fields that differ between kinds of
    servers accept any type. Unknown fields are ignored.

    Attributes:
        block_hashes: the hashes of the blocks.
        parent_block_hash: the hash of the block before the first; None = the blocks begin a prompt.
        token_ids: the token ids of all blocks.
        block_size: tokens in each block.
        lora_id: if `lora_name` is missing, shows that the blocks depend on an adapter.
        medium: the memory that holds the blocks; None = the GPU's.
        lora_name: the adapter; None = the base model.
        extra_keys: what each block depends on in addition to its tokens; None = nothing.
        group_idx: the group of layers to which they belong, in a model whose layers differ; None = all layers.
        kv_cache_spec_kind: the kind of attention of these layers.
        kv_cache_spec_sliding_window: how far these layers look back; None = to the beginning.
        cache_salt: SGLang's salt; vLLM's is the last of the first block's `extra_keys`.
    """

    block_hashes: Hashes
    parent_block_hash: Hash | None
    token_ids: Annotated[list[int], Meta(max_length=MAX_TOKENS)]
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
    """Blocks were removed from a memory."""

    block_hashes: Hashes
    medium: str | None = None
    group_idx: int | None = None


class AllCleared(Struct, tag="AllBlocksCleared"):
    """The cache was emptied."""


class _StoredRow(BlocksStored, tag="BlockStored", array_like=True):
    pass


class _RemovedRow(BlocksRemoved, tag="BlockRemoved", array_like=True):
    pass


class _ClearedRow(AllCleared, tag="AllBlocksCleared", array_like=True):
    pass


KvEvent = BlocksStored | BlocksRemoved | AllCleared


class _Named(Struct):
    ts: float
    events: Annotated[list[Raw], Meta(max_length=MAX_ITEMS)]


class _Row(_Named, array_like=True):
    pass


_BATCHES: Any = msgspec.msgpack.Decoder(_Named), msgspec.msgpack.Decoder(_Row)
_EVENTS: Any = msgspec.msgpack.Decoder(KvEvent), msgspec.msgpack.Decoder(_StoredRow | _RemovedRow | _ClearedRow)
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


def read_batch(payload: bytes) -> list[Raw] | None:
    """The events of a message's last part, in order and not yet decoded. None: it is not a batch of events."""
    try:
        events: list[Raw] = _BATCHES[_is_row(payload)].decode(payload).events
    except _UNREADABLE:
        return None
    return events


def read_event(raw: Raw) -> KvEvent | None:
    """An event of a batch. None: its kind or form is not known."""
    try:
        event: KvEvent = _EVENTS[_is_row(memoryview(raw)[:1])].decode(raw)
    except _UNREADABLE:
        return None
    return event


def _is_row(data: bytes | memoryview) -> bool:
    """Whether this msgpack value is an array, without field names."""
    return bool(data) and (data[0] & 0xF0 == 0x90 or data[0] in {0xDC, 0xDD})
