"""Numbered messages of one server -> its blocks: each message once and in order, with gaps detected."""

from collections.abc import Callable
from typing import Final

from tg_base.runtime import Steps
from tg_picker.core import KvBlocks, ServerState, salt_tokens
from tg_picker.pools.kv_events import AllCleared, BlocksRemoved, BlocksStored, KvEvent, read_batch, read_event
from tg_picker.pools.metrics import KV_EVENTS

_APPLIED, _LOST, _REPEATED, _UNREAD, _UNPLACED = (
    KV_EVENTS.labels(result) for result in ("applied", "lost", "repeated", "unread", "unplaced")
)
_WHOLE_ATTENTION: Final = frozenset({None, "unknown", "full_attention", "mla_attention", "sink_full_attention"})
"""Kinds of layers that attend to the whole prompt. Other layers forget its beginning, so their blocks prove nothing."""
_GPU: Final = frozenset({None, "GPU"})
EVENTS_A_STEP: Final = 64
"""Events that are decoded and applied without a pause: at most 2 ms, unless one of them is large."""


class KvStream:
    """The events of one server, and how complete our knowledge of them is.

    Args:
        state: the state of the server.
        restarted: called when another process publishes at its address.

    Attributes:
        last: the number of the last message that was applied; None = none was.
        is_complete: whether everything since the cache was last empty is known.
    """

    def __init__(self, state: ServerState, restarted: Callable[[], None]) -> None:
        self.last: int | None = None
        self.is_complete = False
        self._last_hash = 0
        self._prefixes = state.prefixes
        self._blocks = KvBlocks(state.prefixes)
        self._restarted = restarted
        self._group: int | None = None

    def take(self, seq: int, payload: bytes, *, final: bool = False) -> Steps[bool]:
        """Apply a message, pausing after every EVENTS_A_STEP: a message of 1 MiB may have tens of thousands of events.

        Args:
            seq: the message's number; a server counts from 0.
            payload: the message's last part.
            final: whether to give up messages that are missing before it.

        Returns:
            False: messages before it are missing, so it was not applied.
        """
        due = 0 if self.last is None else self.last + 1
        if self.last is not None and seq < due:
            _REPEATED.inc()
            return True
        if seq > due:
            if not final:
                return False
            if self.last is not None:
                _LOST.inc(seq - due)
            self._doubt()
        elif not seq:
            self.is_complete = True
        events = read_batch(payload)
        self.last, self._last_hash = seq, hash(payload)
        if events is None:
            _UNREAD.inc()
            self._doubt()
            return True
        for at, raw in enumerate(events, 1):
            event = read_event(raw)
            if event is None:
                _UNREAD.inc()
                self.is_complete = False
            else:
                (_APPLIED if self._apply(event) else _UNPLACED).inc()
            if not at % EVENTS_A_STEP:
                yield
        return True

    def is_last(self, payload: bytes) -> bool:
        """Whether this was the last message applied. Another process would have another message with this number."""
        return hash(payload) == self._last_hash

    def forget(self) -> None:
        """Note that further messages may come from another process."""
        self._doubt()
        self.last = None

    def begin_anew(self) -> None:
        """Note that a new process publishes; its cache was empty when it started."""
        self.last, self.is_complete = None, False
        self._blocks.clear()
        self._restarted()

    def show(self, *, is_followed: bool) -> None:
        """Update what pages and metrics show about the completeness."""
        is_heard = is_followed and (self.is_complete or self.last is not None)
        self._prefixes.source = "believed" if not is_heard else "exact" if self.is_complete else "partial"

    def _doubt(self) -> None:
        self.is_complete = False
        self._blocks.doubt()

    def _apply(self, event: KvEvent) -> bool:
        """Apply an event. Returns whether all of it was applied."""
        if isinstance(event, AllCleared):
            self._blocks.clear()
            self.is_complete = True
            return True
        if isinstance(event, BlocksStored) and self._group is None and _is_whole(event):
            self._group = event.group_idx
        if event.group_idx is not None and event.group_idx != self._group:
            return True
        elsewhere = event.medium not in _GPU
        if isinstance(event, BlocksRemoved):
            self._blocks.remove(event.block_hashes, elsewhere=elsewhere)
            return True
        plain, salt = _find_salt(event)
        if not plain:
            return False
        hashes, tokens = event.block_hashes, event.token_ids
        kept = tokens if plain == len(hashes) else tokens[: len(tokens) // len(hashes) * plain]
        is_stored = self._blocks.store(hashes[:plain], event.parent_block_hash, kept, salt, elsewhere=elsewhere)
        if not is_stored and self._blocks.is_full:
            self.is_complete = False
        return is_stored and plain == len(hashes)


def _is_whole(event: BlocksStored) -> bool:
    return event.kv_cache_spec_kind in _WHOLE_ATTENTION and event.kv_cache_spec_sliding_window is None


def _find_salt(event: BlocksStored) -> tuple[int, str]:
    """How many of the blocks depend only on tokens, adapter and salt; and the salt of their fingerprint."""
    adapter = event.lora_name if isinstance(event.lora_name, str) else ""
    if event.lora_id is not None and not adapter:
        return 0, ""
    salt = event.cache_salt if isinstance(event.cache_salt, str) else ""
    for at, keys in enumerate(event.extra_keys or ()):
        other = [key for key in keys or () if key != adapter]
        if other and not at and event.parent_block_hash is None and len(other) == 1 and isinstance(other[0], str):
            salt = other[0]
        elif other:
            return at, salt_tokens(adapter, salt)
    return len(event.block_hashes), salt_tokens(adapter, salt)
