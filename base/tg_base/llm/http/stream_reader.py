"""Bytes of a body -> events -> LlmChunks: the read loop of every provider that streams over HTTP."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import copy_context
from typing import Final, Protocol

import msgspec

from tg_base.llm.core import LlmChunk, PassOn, join_chunks, note_joined
from tg_schema import TgError
from tg_schema.errors import ProtocolError
from tg_schema.server_sent_events import ServerSentEvents

DRAIN_TIMEOUT_SECONDS = 0.1
"""Seconds to wait for the end of a finished answer's body, so that its connection can be reused."""

USAGE_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for the usage of a finished answer; without it the answer is still complete."""

MAX_EVENT_BYTES = 1024 * 1024
"""Maximum bytes of one event."""

_NO_EVENT = "the provider sent an event that is not part of an answer; check that base_url is its API's"

MAX_TURN_BYTES = 16 * 1024
"""Bytes parsed in one turn of the loop: this bounds how long a body of tiny or empty events delays other streams."""

_NO_ANSWERS: Final[frozenset[int]] = frozenset()
"""Replaced at the end of an answer: an empty set for each stream would take 216 bytes."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of decoding untrusted JSON."""

Read = Callable[[], Awaitable[bytes]]
"""Returns the bytes that have arrived, at least one; b"" at the body's end."""

Take = Callable[[bytes], bytes]
"""Gets the bytes that arrive while a `Read` waits, and returns the result of the `Read`; b"" = it goes on waiting."""


class Frames(Protocol):
    """Splits a body into events; `ServerSentEvents` is one."""

    def feed(self, received: bytes) -> Iterable[bytes]:
        """The data of the events that `received` completes, in order. Raises ProtocolError."""


class EventDecoder(Protocol):
    """Decodes the events of one answer.

    Attributes:
        done: whether the answer and its usage are complete; later events are ignored.
    """

    done: bool

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk of an event's data; None if the event has no part in the answer.

        Raises:
            TgError: the provider reports an error, or its event is inconsistent.
            Exception: one of `UNREADABLE`, for an event of another format. The reader turns it into a ProtocolError.
        """


class Body(Protocol):
    """An open body; `HttpAnswer` is one.

    Attributes:
        ended: whether the whole body has come.
    """

    ended: bool

    def read(self) -> Awaitable[bytes]:
        """A `Read`."""

    def listen(self, take: Take) -> None:
        """While a read waits, offer small reads to `take` first, if the connection can."""


async def event_chunks(
    opened: AbstractAsyncContextManager[Body],
    decoder: EventDecoder,
    usage_patience: float = USAGE_TIMEOUT_SECONDS,
    frames: Frames | None = None,
    answers: int = 1,
) -> AsyncGenerator[LlmChunk, PassOn | None]:
    """The chunks of an answer. The events of one read are joined, since none of them could have been shown earlier.

    `opened` opens the body before the first chunk, and closes it after the last one. It consists of server-sent events
    unless `frames` says otherwise. The loop runs other tasks after each `MAX_TURN_BYTES`. The answer is finished when
    `answers` of its choices have their `finish_reason`. A function sent to the generator gets the chunks that arrive
    while the next is awaited, if the connection can do that.

    Raises:
        TgError: as the body or the decoder raises, after the chunks before it. After the terminal marker nothing is
            raised any more.
    """
    stream = _Stream(decoder, frames or ServerSentEvents(MAX_EVENT_BYTES), answers)
    async with opened as body:
        body.listen(stream.pass_on)
        while not stream.finished and not decoder.done:
            received = await body.read()
            if not received:
                return
            for part in (received,) if len(received) <= MAX_TURN_BYTES else _parts(received):
                if part is not received:
                    await asyncio.sleep(0)
                chunks = stream.look() if stream.gone_on else stream.take(part)
                for chunk in chunks:
                    stream.on_chunk = yield chunk
                if chunks:
                    # Keep neither the chunks nor the read of up to 16 KiB while waiting for the next read.
                    del chunk
                if stream.error is not None and not stream.finished:
                    raise stream.error
            del received, part, chunks
        stream.on_chunk = None
        # Nearly every whole answer ends here: in the read that has its last events.
        rest = None if decoder.done and body.ended else await _rest(body, stream, usage_patience)
        if rest is not None:
            yield rest


class _Stream:
    """Bytes in, chunks out. An error after content is stored, so that the content is delivered first.

    Attributes:
        on_chunk: gets the chunks that arrive while the reader waits for bytes; None = the reader gets them.
        gone_on: whether `on_chunk` got the last read's chunks. Then that read only wakes the reader, for an end or
            error.
    """

    __slots__ = (
        "_answers", "_context", "_ended", "_events", "_failure", "decoder", "error", "finished", "gone_on", "on_chunk",
    )  # fmt: skip

    def __init__(self, decoder: EventDecoder, frames: Frames, answers: int) -> None:
        self._events = frames
        self._answers = answers
        self._ended = _NO_ANSWERS
        self.decoder = decoder
        self.finished = False
        self.error: TgError | None = None
        self.on_chunk: PassOn | None = None
        self.gone_on = False
        self._failure: BaseException | None = None
        # A socket's callbacks run in the context of the request that opened it, whose ids would be logged.
        self._context = copy_context()

    def pass_on(self, received: bytes) -> bytes:
        """A `Take`. Waking the reader's task for each chunk would cost as much as all other work on it."""
        return self._context.run(self._pass_on, received)

    def _pass_on(self, received: bytes) -> bytes:
        on_chunk = self.on_chunk
        if on_chunk is None:
            return received
        try:
            for chunk in self.take(received):
                if not on_chunk(chunk):
                    # The consumer is slow. Later chunks wait in the reader's task.
                    self.on_chunk = None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the socket's call ends here; `look` raises it in the task
            self._failure = error
        else:
            if not (self.finished or self.decoder.done or self.error):
                return b""
        self.gone_on = True
        return received

    def look(self) -> Sequence[LlmChunk]:
        """No chunks, because `pass_on` has passed them on; raises the error that `pass_on` met."""
        try:
            if self._failure is not None:
                raise self._failure
        finally:
            # The error's traceback refers to this object.
            self._failure = None
        return ()

    def take(self, received: bytes) -> Sequence[LlmChunk]:
        if self.decoder.done:
            return ()
        chunks: list[LlmChunk] = []
        try:
            for data in self._events.feed(received):
                chunk = self.decoder.chunk(data)
                if chunk is not None:
                    chunks.append(LlmChunk().with_usage(chunk.usage) if self.finished else chunk)
                    if chunk.finish_reason is not None:
                        self._ended |= {chunk.index}
                        self.finished = len(self._ended) >= self._answers
                if self.decoder.done:
                    break
        except TgError as error:
            self.error = error
        except UNREADABLE:
            self.error = ProtocolError(_NO_EVENT)
        if self.error is not None and not chunks:
            raise self.error from None
        if len(chunks) < 2:
            return chunks
        note_joined(chunks)
        return join_chunks(chunks)


async def _rest(body: Body, stream: _Stream, patience: float) -> LlmChunk | None:
    """The usage that follows a finished answer. Errors and content from here on are ignored."""
    usage = LlmChunk()
    loop = asyncio.get_running_loop()
    drained = stream.decoder.done
    with suppress(TimeoutError, TgError):
        async with asyncio.timeout(DRAIN_TIMEOUT_SECONDS if drained else patience) as clock:
            while received := await body.read():
                for part in _parts(received):
                    if part is not received:
                        await asyncio.sleep(0)
                    (usage,) = join_chunks((usage, *stream.take(part)))
                if stream.decoder.done and body.ended:
                    break
                if stream.decoder.done and not drained:
                    drained = True
                    # The answer is complete; only the end of the body is missing, which the next request on this
                    # connection needs.
                    clock.reschedule(loop.time() + DRAIN_TIMEOUT_SECONDS)
    return usage if usage != LlmChunk() else None


def _parts(received: bytes) -> Iterable[bytes]:
    """The bytes of one read, split if there are more than `MAX_TURN_BYTES`; a slice of all bytes is no copy."""
    return (received[start : start + MAX_TURN_BYTES] for start in range(0, len(received), MAX_TURN_BYTES))
