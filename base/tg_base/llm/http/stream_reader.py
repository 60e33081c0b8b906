"""Socket -> server-sent events -> LlmChunks: the reading loop of every provider that streams events over HTTP."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Protocol

import msgspec

from tg_base.llm.core import LlmChunk, join_chunks
from tg_schema import TgError
from tg_schema.errors import ProtocolError
from tg_schema.server_sent_events import ServerSentEvents

DRAIN_TIMEOUT_SECONDS = 0.1
"""Seconds that a finished answer waits for its body's end, so that the connection can be used again."""

USAGE_TIMEOUT_SECONDS = 5.0
"""Seconds that a finished answer waits for its usage; without usage it is whole all the same."""

MAX_EVENT_BYTES = 1024 * 1024
"""Bytes of one event of a provider."""

_NO_EVENT = "the provider sent an event that is not of an answer; check that base_url is its API's"

MAX_TURN_BYTES = 16 * 1024
"""Bytes that are read apart in one turn of the loop; a body of comments and empty events costs neighbours no more."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoding of foreign JSON raises."""

Read = Callable[[], Awaitable[bytes]]
"""What has arrived, at least one byte; nothing at the body's end."""


class Frames(Protocol):
    """Takes a body apart; `ServerSentEvents` is one."""

    def feed(self, received: bytes) -> list[bytes]:
        """The data of the events that `received` completes, in order. Raises ProtocolError."""


class EventDecoder(Protocol):
    """One answer as it is read.

    Attributes:
        done: whether all has been told; what follows is not read as a part of the answer.
    """

    done: bool

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk for an event's data; None where the event has nothing to say.

        Raises:
            TgError: the provider reports an error, or says what makes no sense.
            Exception: one of `UNREADABLE`: it is no event of this provider. The reader makes a ProtocolError of it.
        """


async def event_chunks(
    read: Read, decoder: EventDecoder, usage_patience: float = USAGE_TIMEOUT_SECONDS, frames: Frames | None = None
) -> AsyncGenerator[LlmChunk, None]:
    """The chunks of an answer: what arrives in one read becomes one chunk, nobody could have shown its parts earlier.

    The body is one of server-sent events where `frames` says nothing else. The loop gets its turn after each
    `MAX_TURN_BYTES`, whatever they hold.

    Raises:
        TgError: of the decoder, after the chunks before it; after the terminal marker nothing is raised any more.
    """
    stream = _Stream(decoder, frames or ServerSentEvents(MAX_EVENT_BYTES))
    while not stream.finished and not decoder.done:
        received = await read()
        if not received:
            return
        for part in _parts(received):
            if part is not received:
                await asyncio.sleep(0)
            chunk = stream.take(part)
            if chunk is not None:
                yield chunk
            if stream.error is not None and not stream.finished:
                raise stream.error
    rest = await _rest(read, stream, usage_patience)
    if rest is not None:
        yield rest


class _Stream:
    """Bytes in, chunks out; an error after content is kept for later."""

    def __init__(self, decoder: EventDecoder, frames: Frames) -> None:
        self._events = frames
        self.decoder = decoder
        self.finished = False
        self.error: TgError | None = None

    def take(self, received: bytes) -> LlmChunk | None:
        if self.decoder.done:
            return None
        chunks: list[LlmChunk] = []
        try:
            for data in self._events.feed(received):
                chunk = self.decoder.chunk(data)
                if chunk is not None:
                    chunks.append(chunk.usage if self.finished else chunk)
                    self.finished = self.finished or chunk.finish_reason is not None
                if self.decoder.done:
                    break
        except TgError as error:
            self.error = error
        except UNREADABLE:
            self.error = ProtocolError(_NO_EVENT)
        if self.error is not None and not chunks:
            raise self.error from None
        if len(chunks) < 2:
            return chunks[0] if chunks else None
        return join_chunks(chunks)


async def _rest(read: Read, stream: _Stream, patience: float) -> LlmChunk | None:
    """What follows a finished answer, its usage; whatever comes from here on makes the answer neither less nor more."""
    usage = LlmChunk()
    loop = asyncio.get_running_loop()
    drained = stream.decoder.done
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT_SECONDS if drained else patience) as clock:
            while received := await read():
                for part in _parts(received):
                    if part is not received:
                        await asyncio.sleep(0)
                    chunk = stream.take(part)
                    if chunk is not None:
                        usage = join_chunks((usage, chunk))
                if stream.decoder.done and not drained:
                    drained = True
                    clock.reschedule(loop.time() + DRAIN_TIMEOUT_SECONDS)
    except (TimeoutError, TgError):
        pass
    return usage if usage != LlmChunk() else None


def _parts(received: bytes) -> Iterable[bytes]:
    """What was read, itself where it is small; else others have their turn before each part."""
    if len(received) <= MAX_TURN_BYTES:
        return (received,)
    return (received[start : start + MAX_TURN_BYTES] for start in range(0, len(received), MAX_TURN_BYTES))
