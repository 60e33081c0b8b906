"""Inbox -> caller: one stream's responses, behind a bounded buffer."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, Self

from typing_extensions import override

from tg_schema.codec import decode
from tg_schema.errors import BadRequest, ProtocolError, SlowConsumer, TgError, Timeout
from tg_schema.service_spec import Resp

BUFFER = 1024 * 1024
"""Bytes of records that may wait for a slow reader; beyond it that stream ends, alone, with SlowConsumer."""


class ResponseStream(AsyncIterator[Resp], Generic[Resp]):
    """Iterate to read, or `listen` and `poll`. What waits is joined: a slow reader gets fewer and larger records.

    Attributes:
        id: the stream's id, everywhere.
        relayed: whether a record has come, so that no other attempt may answer.
        complete: whether the last record has come.
        asked: bytes of the request, as it travelled.
        came: loop time at which the oldest of the records that were read last had come.

    Raises (while iterating):
        TgError: the stream failed. Nothing follows.
    """

    def __init__(self, stream: str, record: type[Resp], timeout: float) -> None:
        self.id = stream
        self.relayed = False
        self.complete = False
        self.asked = 0
        self.came = 0.0
        self._record = record
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._records: deque[Resp] = deque()
        self._error: TgError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._listener: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + timeout
        self._timer = self._loop.call_at(self._end, self._late, timeout)

    @property
    def remaining(self) -> float:
        """Seconds until the deadline."""
        return self._end - self._loop.time()

    @property
    def waiting(self) -> int:
        """Bytes that have come and were not read."""
        return self._size

    @property
    def failed(self) -> bool:
        """Whether an error of this end (a clock, a full buffer, a dead processor) has ended the stream."""
        return self._error is not None

    def put(self, body: bytes, *, last: bool) -> None:
        """The next record has come."""
        if self.complete or self.failed:
            return
        self.relayed = True
        if not self._frames:
            self.came = self._loop.time()
        self._size += len(body)
        if self._size > BUFFER and len(self._frames) > 1:
            self.fail(SlowConsumer("the reader did not keep up with the stream"))
            return
        self._frames.append(body)
        self.complete = last
        self._wake()

    def fail(self, error: TgError) -> None:
        """Nothing more will come; what came before is still read, then the error is raised."""
        if not self.complete and self._error is None:
            self._error = error
            self._wake()

    def close(self) -> None:
        """Nobody reads any more."""
        self._timer.cancel()
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
            self._read()
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

    def _read(self) -> None:
        frames, self._frames, self._size = self._frames, deque(), 0
        try:
            self._records.extend(self._record.joined([decode(self._record, frame) for frame in frames]))
        except BadRequest:
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

    def _late(self, timeout: float) -> None:
        self.fail(Timeout(f"no complete answer within {timeout:g} s"))
