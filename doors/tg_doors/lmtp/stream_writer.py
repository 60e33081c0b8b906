"""The base of LMTP's writers: the error that ends a stream, and what a token needs to be sent."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from typing_extensions import override

from tg_doors.lmtp.messages import encode_stream_error
from tg_doors.lmtp.token_batch import TokenBatch
from tg_gateway.dialects import Writer
from tg_schema import TextCompletionResponse, TgError, Token
from tg_schema.completion import NO_TOKEN_ID
from tg_schema.errors import ProtocolError

Seq = int | msgspec.UnsetType
"""The number of an item of a stream that can be resumed; others have none."""


class StreamItem(Protocol):
    """What every item has."""

    @property
    def seq(self) -> Seq:
        """Its number, from 1."""


class StreamWriter(Writer[TextCompletionResponse]):
    """Writes the items of one stream.

    Args:
        stream: its id.
        batch: takes its items, and those of the other streams.
        typed: whether errors say what kind they are.
        tops: alternatives of an item, at most.

    Attributes:
        stream: its id.
        on_begin: called once, before its first items.
        count: items so far, of those that are numbered.
    """

    def __init__(self, stream: int, batch: TokenBatch, *, typed: bool, tops: int = 0) -> None:
        self.stream = stream
        self._batch = batch
        self._typed = typed
        self._width = 1 + tops
        self.on_begin: Callable[[], None] | None = None
        self.count = 0
        self._after: int | None = None

    def number_items(self, after: int) -> None:
        """Number the items from 1, and send those with a number over `after`."""
        self._after = after

    def next_seq(self) -> Seq:
        """The number of the next item."""
        if self._after is None:
            return msgspec.UNSET
        self.count += 1
        return self.count

    def write_items(self, items: Sequence[StreamItem], *, last: bool) -> bytes:
        """Queue these items. With the last ones, return the bytes of all queued ones: no others follow."""
        if self.on_begin is not None:
            begin, self.on_begin = self.on_begin, None
            begin()
        if self._after:
            items = [item for item in items if isinstance(item.seq, int) and item.seq > self._after]
        self._batch.add(items, self._width)
        return self._batch.take() if last else b""

    @override
    def fail(self, error: TgError) -> bytes:
        return self._batch.take() + encode_stream_error(self.stream, error, typed=self._typed)


def known_logprob(token: Token) -> float:
    """Its log-probability.

    Raises:
        ProtocolError: the provider has told none, or no id.
    """
    if token.logprob is None or token.id == NO_TOKEN_ID:
        raise ProtocolError("the model's provider did not tell the ids and log-probabilities of its tokens")
    return token.logprob
