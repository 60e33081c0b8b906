"""Inbox -> caller: one stream's responses, behind a bounded buffer."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, Self

from typing_extensions import override

from tg_base.client.stream_clock import StreamClock
from tg_schema import TgError, decode
from tg_schema.errors import BadRequest, ProtocolError, SlowConsumer
from tg_schema.pieces import MAX_EVENT_BYTES
from tg_schema.service_spec import Resp

MAX_BUFFERED_BYTES = 1024 * 1024
"""Bytes of records that may wait for a slow reader; beyond it that stream ends, alone, with SlowConsumer."""


class ResponseStream(AsyncIterator[Resp], Generic[Resp]):
    """Iterate to read, or `listen` and `poll`. What waits is joined: a slow reader gets fewer and larger records.

    A record's texts have at most `MAX_EVENT_BYTES`, so that every door can pass it on as one event; only an object (of
    a JSON template) and a list of models come whole, whatever their size.

    Args:
        stream: its id.
        record: what comes.
        timeout: seconds until the first record, and of silence between two of them.
        total: seconds for the whole answer; None = what the model, or the agent, sets itself.
        whole: one record is the whole answer; then a processor's word that it works is as good as a record.

    Attributes:
        id: the stream's id, everywhere.
        relayed: whether a record has come, so that no other attempt may answer.
        complete: whether the last record has come.
        asked: bytes of the request, as it travelled.
        came: loop time at which the oldest of the records that were read last had come.

    Raises (while iterating):
        TgError: the stream failed. Nothing follows.
    """

    def __init__(
        self, stream: str, record: type[Resp], timeout: float, *, total: float | None = None, whole: bool = False
    ) -> None:
        self.id = stream
        self.relayed = False
        self.complete = False
        self.asked = 0
        self.came = 0.0
        self._record = record
        self._frames: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._cut_size = 0
        self._records: deque[Resp] = deque()
        self._error: TgError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._listener: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._whole = whole
        self._clock = StreamClock(timeout, total, self.fail)

    @property
    def remaining(self) -> float:
        """Seconds until this end gives up, if nothing comes."""
        return self._clock.remaining

    @property
    def waiting(self) -> int:
        """Bytes that have come and were not read."""
        return self._size + (self._cut_size if self._records else 0)

    @property
    def failed(self) -> bool:
        """Whether an error of this end (a clock, a full buffer, a dead processor) has ended the stream."""
        return self._error is not None

    def put(self, body: bytes, *, last: bool) -> None:
        """The next record has come."""
        if self.complete or self.failed:
            return
        self.relayed = True
        now = self._loop.time()
        self._clock.heard_at = now
        self._size += len(body)
        if self._size > MAX_BUFFERED_BYTES and len(self._frames) > 1:
            self.fail(SlowConsumer("the reader did not keep up with the stream"))
            return
        self._frames.append((now, body))
        self.complete = last
        self._wake()

    def accept(self) -> None:
        """A processor says that it works on this. Nothing else can be heard of a whole answer before it is there."""
        if self._whole:
            self._clock.heard_at = self._loop.time()

    def fail(self, error: TgError) -> None:
        """Nothing more will come; what came before is still read, then the error is raised."""
        if not self.complete and self._error is None:
            self._error = error
            self._wake()

    def close(self) -> None:
        """Nobody reads any more."""
        self._clock.close()
        self.fail(SlowConsumer("the stream was closed by its reader"))

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Resp:
        while (record := self.poll()) is None:
            if self.complete:
                raise StopAsyncIteration
            await self._come()
        return record

    def poll(self) -> Resp | None:
        """The next record, without waiting; None where none has come, or after the last one (`complete`).

        Raises:
            TgError: the stream failed. Nothing follows.
        """
        if not self._records and self._frames:
            self._join_waiting()
        if not self._records:
            if self._error is not None:
                raise self._error
            return None
        record = self._records.popleft()
        if record.error is not None:
            raise TgError.of(record.error)
        return record

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Call `listener`, in place of waking who iterates, whenever something has come or the stream has failed.

        It is called from where records arrive: it does not raise, and does not wait. A task's turn a record is saved.
        """
        self._listener = listener

    def _join_waiting(self) -> None:
        """The next records: what waits is joined, and what is too long for one event of a door is cut."""
        self.came = self._frames[0][0]
        bodies: list[bytes] = []
        size = 0
        while self._frames and (not bodies or size + len(self._frames[0][1]) <= MAX_EVENT_BYTES):
            bodies.append(self._frames.popleft()[1])
            size += len(bodies[-1])
        self._size -= size
        self._cut_size = size if size > MAX_EVENT_BYTES else 0
        try:
            records = self._record.join([decode(self._record, body) for body in bodies])
            if size > MAX_EVENT_BYTES:
                records = [piece for record in records for piece in record.cut(MAX_EVENT_BYTES)]
            self._records.extend(records)
        except BadRequest:
            self._frames.clear()
            self._size = 0
            self._error = ProtocolError("a response on the bus is not a record of its service")

    async def _come(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._listener is not None:
            self._listener()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
