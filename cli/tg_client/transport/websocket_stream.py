"""WebSocket -> caller: one stream's records, behind a bounded buffer."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, Self

from typing_extensions import override

from tg_client.transport.deadline import Deadline
from tg_client.transport.records import records_of
from tg_schema import TgError
from tg_schema.errors import SlowConsumer
from tg_schema.service_spec import Resp

MAX_BUFFERED_BYTES = 1024 * 1024
"""Bytes of records buffered for a slow reader. A stream that exceeds it ends with SlowConsumer; no other does."""


class WebSocketStream(AsyncIterator[Resp], Generic[Resp]):
    """Iterate to read. Buffered records are joined: a slow reader gets fewer and larger ones.

    Attributes:
        over: whether the gateway will send nothing more.
    """

    def __init__(self, kind: type[Resp], clock: Deadline) -> None:
        self.over = False
        self._kind = kind
        self._clock = clock
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._records: deque[Resp] = deque()
        self._error: TgError | None = None
        self._read_last = False
        self._news = asyncio.Event()

    def put(self, data: bytes) -> None:
        """The next record has come."""
        self._size += len(data)
        # A single record is accepted at any size; the largest frame bounds it.
        if self._size > MAX_BUFFERED_BYTES and self._frames:
            self.fail(SlowConsumer("the answer was not read as fast as it came"))
        elif self._error is None:
            self._frames.append(data)
            self._news.set()

    def fail(self, error: TgError) -> None:
        """End the stream: the reader gets the buffered records, then the error. Ignored after the last record."""
        if self._error is None:
            self._error = error
            self._news.set()

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Resp:
        while not self._records:
            if self._frames:
                self._join_waiting()
            elif self._read_last:
                raise StopAsyncIteration
            elif self._error is not None:
                raise self._error
            else:
                self._news.clear()
                await self._clock.within(self._news.wait())
        self._clock.hear()
        return self._records.popleft()

    def _join_waiting(self) -> None:
        frames, self._frames, self._size = self._frames, deque(), 0
        records: list[Resp] = []
        try:
            for frame in frames:
                records.extend(records_of(self._kind, frame))
        except TgError as error:
            self._error = error
        self._read_last = bool(records) and records[-1].last
        self._records.extend(self._kind.join(records))
