"""The base of LMTP's writers: items of all streams in one message, the error that ends a stream, and its buffer."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from typing_extensions import override

from tg_doors.lmtp.buffers import Content
from tg_doors.lmtp.messages import encode_error, encode_message
from tg_gateway.dialects import Output, WrappingWriter, Writer
from tg_schema import FinishReason, TextCompletionResponse, TgError, Token
from tg_schema.completion import NO_TOKEN_ID
from tg_schema.errors import ProtocolError

MAX_ITEMS = 256
"""Approximate maximum of items in one message, which is then sent without waiting for more."""
MAX_ENTRIES = 16 * 1024
"""The same maximum of items and alternatives together: LMQL's clients close a socket with a message above 4 MiB."""


class TokenBatch:
    """The items of this turn of the event loop. One message per turn costs both ends less than one per stream.

    Args:
        send: sends a message.
        later: calls back in the next turn of the event loop.
    """

    def __init__(self, send: Callable[[bytes], None], later: Callable[[Callable[[], None]], object]) -> None:
        self._send = send
        self._later = later
        self._items: list[object] = []
        self._entries = 0

    def add(self, items: Sequence[object], width: int) -> None:
        """Send items, together with the others of this turn of the loop. Each counts as `width` entries."""
        if not items:
            return
        # The first item schedules the flush in the next turn; the others only join.
        if not self._items:
            self._later(self.flush)
        self._items += items
        self._entries += len(items) * width
        if len(self._items) >= MAX_ITEMS or self._entries >= MAX_ENTRIES:
            self.flush()

    def take(self) -> bytes:
        """The bytes of all waiting items, to be sent by the caller."""
        items, self._items, self._entries = self._items, [], 0
        return encode_message(b"TOKEN", items) if items else b""

    def flush(self) -> None:
        """Send all that waits."""
        if message := self.take():
            self._send(message)


Seq = int | msgspec.UnsetType
"""The number of an item; only items of a stream that can be resumed have one."""


class StreamItem(Protocol):
    """The fields of every item."""

    @property
    def seq(self) -> Seq:
        """Its number, from 1."""


class StreamWriter(Writer[TextCompletionResponse]):
    """Writes the items of one stream.

    Args:
        stream: its id.
        batch: takes its items, and the items of the other streams.
        typed: whether errors contain their kind.
        tops: most alternatives of an item.

    Attributes:
        stream: its id.
        on_begin: called once, before its first items.
        count: how many numbered items there were so far.
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
        """Queue these items. With the last items, return the bytes of all queued items: no others follow."""
        if self.on_begin is not None:
            begin, self.on_begin = self.on_begin, None
            begin()
        if self._after:
            items = [item for item in items if isinstance(item.seq, int) and item.seq > self._after]
        self._batch.add(items, self._width)
        return self._batch.take() if last else b""

    @override
    def fail(self, error: TgError) -> bytes:
        return self._batch.take() + encode_error(self.stream, error, typed=self._typed, ends=True)


class LeavingWriter(WrappingWriter[TextCompletionResponse]):
    """Wraps another writer, and passes the whole answer to `leave` at the end.

    Args:
        writer: the writer of the stream.
        ids: whether the answer is token ids; otherwise it is text.
        leave: called once, before the last item is sent. The model's own end token is no part of the answer.

    Attributes:
        cancelled: set when the client cancels the stream: the buffer gets the answer up to then.
    """

    def __init__(self, writer: StreamWriter, leave: Callable[[Content], None], *, ids: bool) -> None:
        super().__init__(writer)
        self.cancelled = False
        self._ids = ids
        self._leave = leave
        self._tokens: list[int] = []
        self._texts: list[str] = []
        self._reason: FinishReason | None = None

    @override
    def write(self, record: TextCompletionResponse) -> Output:
        if self._ids:
            self._tokens += [token.id for token in record.tokens]
        elif record.response:
            self._texts.append(record.response)
        self._reason = record.finish_reason or self._reason
        data = super().write(record)
        if record.last:
            # Leave the buffer before the client can name it, and only if the stream has not failed.
            self._leave(self._make_content())
        return data

    def _make_content(self) -> Content:
        if not self._ids:
            return "".join(self._texts)
        return tuple(self._tokens[:-1] if self._reason == "stop" else self._tokens)

    @override
    def fail(self, error: TgError) -> Output:
        if self.cancelled:
            self.cancelled = False
            self._leave(self._make_content())
        return super().fail(error)


def known_logprob(token: Token) -> float:
    """The log-probability of a token.

    Raises:
        ProtocolError: the provider sent no log-probability, or a token without an id.
    """
    if token.logprob is None or token.id == NO_TOKEN_ID:
        raise ProtocolError("the model's provider did not tell the ids and log-probabilities of its tokens")
    return token.logprob
