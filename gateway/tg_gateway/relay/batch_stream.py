"""Requests of a batch -> streams side by side -> one stream: all records as they come, numbered, with one end."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec
import structlog

from tg_base.client import Requestor, ResponseStream
from tg_base.protocol import Route
from tg_base.runtime import running, translate_defects
from tg_gateway.dialects import Batch, FailedRequest, FieldNames
from tg_schema import TgError
from tg_schema.codec import encode_request
from tg_schema.errors import Internal, ProtocolError, RateLimited, SlowConsumer, TooLarge, Unavailable

log = structlog.get_logger()

MAX_BUFFERED_BYTES: Final = 1024 * 1024
"""Bytes of streamed records of a whole batch that wait for a slow reader: as much as for a single answer."""
MAX_ASKED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all requests of a batch. Each request repeats the shared parts, so a small body could ask for gigabytes."""
_SMALL_BYTES: Final = 16 * 1024
"""A stream with fewer bytes does not trigger summing up all streams."""
_Asked = AbstractAsyncContextManager[ResponseStream[Any]]


class BatchStream:
    """Several streams, read like one `ResponseStream`. The streams are added as they are opened.

    Args:
        batch: the requests that they answer.
        fields: the client's names of fields that an error may name.

    Attributes:
        id: the id of the first request's stream.
        request_bytes: bytes of the requests sent so far.
        came: when the last record that was read arrived (loop time).
        independent: whether the requests are independent of each other.
        model: the model that was asked for the last record that was read.
    """

    def __init__(self, batch: Batch, fields: FieldNames | None = None) -> None:
        self.id = ""
        self.request_bytes = 0
        self.came = 0.0
        self.model: str | None = None
        self._answers = batch.answers
        self._fields = fields
        self.independent = batch.independent
        self._uniform = batch.uniform
        self._streaming = getattr(batch.requests[0], "streaming", True)
        self._left = len(batch.requests)
        self._streams: dict[int, tuple[ResponseStream[Any], asyncio.Event]] = {}
        self._ready: dict[int, None] = {}
        self._refused: deque[tuple[int, TgError]] = deque()
        self._error: TgError | None = None
        self._wake: Callable[[], None] = _ignore

    @property
    def complete(self) -> bool:
        """Whether the last record of all has been read."""
        return not self._left

    @property
    def failed(self) -> bool:
        """Whether an error has ended all of it."""
        return self._error is not None

    @property
    def waiting(self) -> int:
        """Bytes that are buffered for the reader."""
        return sum(stream.waiting for stream, _ in self._streams.values())

    def add(self, number: int, stream: ResponseStream[Any]) -> asyncio.Event:
        """Read this stream, too; the event is set when its last record has been read, or all has failed.

        Args:
            number: the number of its request in the batch.
            stream: its answer; keep it open until then.
        """
        self.id = self.id or stream.id
        self.request_bytes += stream.request_bytes
        ended = asyncio.Event()
        if self.failed:
            ended.set()
        self._streams[number] = stream, ended
        stream.listen(lambda: self._arrive(number, stream))
        # Records that arrived before there was a listener.
        self._arrive(number, stream)
        return ended

    def refuse(self, number: int, error: TgError) -> None:
        """Record that one request of an independent batch could not be sent; the error is its answer."""
        self._refused.append((number, error))
        self._wake()

    def fail(self, error: TgError) -> None:
        """End the stream: no further records are read, and all that still runs is left, though no reader sees it."""
        if self._left and self._error is None:
            self._error = error
            for _, ended in self._streams.values():
                ended.set()
            self._wake()

    def poll(self) -> Any:
        """The next record of any stream, without waiting; None if none is buffered. The streams take turns.

        Raises:
            TgError: one of the streams failed, and they are not independent.
        """
        if self._error is not None:
            raise self._error
        if self._refused:
            return self._end(*self._refused.popleft())
        while self._ready:
            # Taken from the front and put back at the end: the streams take turns.
            number = next(iter(self._ready))
            del self._ready[number]
            stream, ended = self._streams[number]
            try:
                record = stream.poll()
                if record is not None and record.index >= self._answers:
                    # It would appear in the place of another request's answer.
                    raise ProtocolError("the model sent more answers than were asked for; ask again, or another model")
                if record is not None and self._uniform and self.model not in {None, stream.model}:
                    raise Unavailable("two models of the route answered parts of this list; ask again")
            except TgError as error:
                if not self.independent:
                    raise
                del self._streams[number]
                stream.listen(None)
                ended.set()
                return self._end(number, error)
            if record is not None:
                self.came, self.model = stream.came, stream.model
                return self._place(number, record, ended)
        return None

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Call `listener` when a record arrives or a stream fails; see `ResponseStream.listen`."""
        self._wake = listener or _ignore

    def listen_accepted(self, listener: Callable[[], None], on_opening: Callable[[], None] | None = None) -> None:
        """Never calls it: the requests of a batch do not begin at the same time."""

    def _place(self, number: int, record: Any, ended: asyncio.Event) -> Any:
        """The record with its numbers in the whole answer."""
        last = record.last
        if last:
            self._left -= 1
            del self._streams[number]
            ended.set()
        else:
            self._ready[number] = None
        index = record.index + number * self._answers
        return msgspec.structs.replace(record, index=index, end_of_stream=last and not self._left)

    def _end(self, number: int, error: TgError) -> FailedRequest:
        self._left -= 1
        if self._fields is not None:
            error = self._fields.translate(error)
        return FailedRequest(number * self._answers, error, not self._left)

    def _arrive(self, number: int, stream: ResponseStream[Any]) -> None:
        self._ready[number] = None
        # Check this stream's size first, since the sum has to ask every stream.
        if self._streaming and stream.waiting > _SMALL_BYTES and self.waiting > MAX_BUFFERED_BYTES:
            self.fail(
                SlowConsumer("the reader did not keep up with the stream; read faster, or ask for shorter answers")
            )
        else:
            self._wake()


@asynccontextmanager
async def ask_batch(
    requestor: Requestor,
    route: Route[Any, Any],
    batch: Batch,
    *,
    timeout: float,
    places: int,
    fields: FieldNames | None = None,
) -> AsyncIterator[BatchStream]:
    """Ask, and read all answers as one inside `async with`; leaving early stops all.

    The first request is admitted like any other. Further requests run at the same time as far as the queue has
    capacity, up to `places`; each of the rest takes the place of one that has ended.

    Raises:
        TooLarge: the requests of the batch are too large together.
        TgError: as `Requestor.stream`, for the first requests.
    """
    check_size(batch.requests)
    answer = BatchStream(batch, fields)
    rest = deque(enumerate(batch.requests))

    def ask(request: Any, *, bounded: bool) -> _Asked:
        return requestor.stream(route, request, timeout=timeout, bounded=bounded)

    async with AsyncExitStack() as stack:
        opened = 0
        while rest and opened < places:
            number, request = rest[0]
            place = await stack.enter_async_context(AsyncExitStack())
            try:
                ended = answer.add(number, await place.enter_async_context(ask(request, bounded=True)))
            except RateLimited:
                if not opened:
                    raise
                break
            except TgError as error:
                # A retryable error fails the whole batch.
                if not batch.independent or error.retryable:
                    raise
                answer.refuse(number, error)
                rest.popleft()
                continue
            opened += 1
            rest.popleft()
            await stack.enter_async_context(running(_refill(answer, place, ended, rest, ask)))
        yield answer


def check_size(requests: Sequence[Any]) -> None:
    """Check the size of a batch. Two requests are encoded; all are if these two suggest that it may be too large.

    Raises:
        TooLarge: all requests have more than `MAX_ASKED_BYTES`.
    """
    # The first and the last are enough: what makes a batch large is what all of its requests repeat.
    smallest = min(len(encode_request(requests[place])) for place in (0, -1))
    if smallest * len(requests) <= MAX_ASKED_BYTES:
        return
    size = 0
    for request in requests:
        size += len(encode_request(request))
        if size > MAX_ASKED_BYTES:
            raise TooLarge(
                f"the requests for all entries of the list have more than {MAX_ASKED_BYTES} bytes together, since each "
                "repeats the parameters; ask for fewer at a time"
            )


async def _refill(
    answer: BatchStream,
    place: AsyncExitStack,
    ended: asyncio.Event,
    rest: deque[tuple[int, Any]],
    ask: Callable[..., _Asked],
) -> None:
    """Whenever the answer in a place has ended, leave it and send the next request there, unless all have failed.

    The remaining requests were admitted together with their place.
    """
    try:
        with translate_defects(Internal, "a request of a batch could not be asked", "gateway.defect", log):
            await ended.wait()
            await place.aclose()
            while rest and not answer.failed:
                number, request = rest.popleft()
                try:
                    stream = await place.enter_async_context(ask(request, bounded=False))
                except TgError as error:
                    if not answer.independent:
                        raise
                    answer.refuse(number, error)
                    continue
                await answer.add(number, stream).wait()
                await place.aclose()
    except TgError as error:
        answer.fail(error)


def _ignore() -> None:
    """Nobody listens."""
