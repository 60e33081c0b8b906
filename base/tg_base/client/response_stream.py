"""Inbox -> caller: one stream's responses, behind a bounded buffer."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextvars import Context
from typing import Generic, Self

from typing_extensions import override

from tg_base.client.attempt import Attempt, StreamOrigin
from tg_base.runtime import LATE_SECONDS
from tg_schema import TgError, decode
from tg_schema.errors import BadRequest, ProtocolError, SlowConsumer, Timeout
from tg_schema.pieces import MAX_EVENT_BYTES
from tg_schema.service_spec import Resp

MAX_BUFFERED_BYTES = 1024 * 1024
"""Bytes of records buffered for a slow reader. A stream that exceeds it ends with SlowConsumer; no other does."""
MAX_SENT_BYTES = 1024 * 1024
"""Bytes of an attempt's records that are kept so that another attempt can continue after them. A longer answer is not
continued."""


class ResponseStream(AsyncIterator[Resp], Generic[Resp]):
    """One reader polls, and listens for when to poll again; iterating does that for a task.

    Buffered records are joined: a slow reader gets fewer and larger ones. A record's texts have at most
    `MAX_EVENT_BYTES`, so that every dialect can send it as one event. Only an object (of a JSON template) and a list of
    models come whole, whatever their size.

    The time restarts with each sign of progress: a flowing answer never times out. One timer serves the whole stream;
    it is set anew when it fires too early, and not for each record.

    Args:
        attempt: the first one.
        timeout: seconds until the first record, without those in which its model is opened, and of silence between two.
        total: seconds for the whole answer; None = the limit of the model or the agent.
        whole: whether the answer is a single record; then an "accepted" frame counts as progress, like a record.

    Attributes:
        id: the stream's id, everywhere.
        attempt: the current one.
        complete: whether the last record has come.
        request_bytes: size of the request on the bus, in bytes.
        came: arrival time (loop time) of the oldest record in the last batch read.
        taken: frames that the reader has, or has begun to read.
        left: whether the work continues when the reader leaves, because another requestor adopts it.
        death: the error that ended the last attempt, until the next one has sent something; None = no such error.

    Raises (by `poll`, and while iterating):
        TgError: the stream failed. Nothing follows.
    """

    __slots__ = (
        "__weakref__", "_accepted", "_began", "_cut_size", "_end", "_error", "_frames", "_loop", "_on_accepted",
        "_on_opening", "_opening", "_progress_at", "_record", "_records", "_size", "_timeout", "_timer", "_total",
        "_wake", "_whole", "attempt", "came", "complete", "death", "id", "left", "request_bytes", "taken",
    )  # fmt: skip

    def __init__(self, attempt: Attempt, timeout: float, *, total: float | None = None, whole: bool = False) -> None:
        self.id = attempt.key.stream
        self.attempt = attempt
        self.complete = False
        self.request_bytes = 0
        self.came = 0.0
        self.taken = 0
        self.left = False
        self.death: TgError | None = None
        self._record: type[Resp] = attempt.route.spec.response
        # Lists, since an empty deque takes 0.7 KiB, for each of thousands of streams.
        self._frames: list[tuple[float, bytes]] = []
        self._size = 0
        self._cut_size = 0
        self._records: list[Resp] = []
        self._error: TgError | None = None
        self._wake: Callable[[], None] = _ignore
        self._accepted = False
        self._opening = False
        self._on_accepted: Callable[[], None] = _ignore
        self._on_opening: Callable[[], None] = _ignore
        self._loop = asyncio.get_running_loop()
        self._whole = whole
        self._timeout = timeout
        self._total = total
        self._began = now = self._loop.time()
        self._end = math.inf if total is None else now + total
        self._progress_at: float | None = None
        self._timer = self._loop.call_at(self._due + LATE_SECONDS, self._check_time, context=Context())

    @property
    def remaining(self) -> float:
        """Seconds until the stream times out, if nothing comes."""
        return self._due - self._loop.time()

    @property
    def _due(self) -> float:
        return min((self._began if self._progress_at is None else self._progress_at) + self._timeout, self._end)

    def _check_time(self) -> None:
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due + LATE_SECONDS, self._check_time, context=Context())
        elif self._due == self._end:
            self.fail(Timeout(f"no complete answer within {self._total:g} s"))
        else:
            what = "no answer" if self._progress_at is None else "nothing more of the answer"
            self.fail(Timeout(f"{what} came within {self._timeout:g} s"))

    @property
    def waiting(self) -> int:
        """Bytes that are buffered for the reader."""
        return self._size + (self._cut_size if self._records else 0)

    @property
    def model(self) -> str | None:
        """The model that was asked last, by its name in the configuration; None = not known."""
        return self.attempt.route.model

    @property
    def origin(self) -> StreamOrigin | None:
        """Where the answer is made; None = not known yet."""
        key, processor = self.attempt.key, self.attempt.processor
        return None if processor is None else StreamOrigin(key.stream, key.attempt, processor)

    @property
    def settled(self) -> bool:
        """Whether its reader has all of the `taken` frames."""
        return not self._records

    @property
    def failed(self) -> bool:
        """Whether an error at this end (a timeout, a full buffer, a dead processor) has ended the stream."""
        return self._error is not None

    def put(self, body: bytes, *, last: bool) -> bool:
        """Take the next record. False = the stream has failed, and nobody waits for the rest of the answer."""
        # Frames may still be in flight when the stream ends here; their sender is cancelled.
        if self.complete or self._error is not None:
            return self._error is None
        self._progress_at = now = self._loop.time()
        self._size += len(body)
        attempt = self.attempt
        attempt.pieces += 1
        attempt.received += len(body)
        attempt.last, attempt.came_at, attempt.complete = body, now, last
        if attempt.sent is not None and not last:
            attempt.sent.append(body)
            if attempt.received > MAX_SENT_BYTES:
                attempt.sent = None
        # A single record is accepted at any size: the bus has limited it already.
        if self._size > MAX_BUFFERED_BYTES and len(self._frames) > 1:
            self.fail(
                SlowConsumer("the reader did not keep up with the stream; read faster, or ask for a shorter answer")
            )
            return False
        self._frames.append((now, body))
        self.complete = last
        self._wake()
        return self._error is None

    def accept(self, *, opening: bool = False) -> None:
        """Note that a processor works on the request, or opens its model: the only progress of a whole answer."""
        self.attempt.accepted |= not opening
        if not self._accepted and not self.failed:
            if opening and not self._opening:
                self._opening = True
                self._on_opening()
            elif not opening:
                self._accepted = True
                self._on_accepted()
        if self._whole:
            self._progress_at = self._loop.time()
        elif opening:
            self._began = self._loop.time()

    def fail(self, error: TgError) -> None:
        """End the stream: the reader gets the buffered records, then the error."""
        if not self.complete and self._error is None:
            self._error = self.death or error
            self._wake()

    def close(self) -> None:
        """The reader has left."""
        self._timer.cancel()
        left = SlowConsumer("the stream was closed by its reader")
        self.fail(left)
        if self.failed:
            # A raised error's traceback refers to this object: another cycle.
            self._error = left

    def poll(self) -> Resp | None:
        """The next record, without waiting; None if none is buffered, or after the last one (`complete`).

        Raises:
            TgError: the stream failed. Nothing follows.
        """
        if not self._records and self._frames:
            self._join_waiting()
        if not self._records:
            if self._error is not None:
                raise self._error
            return None
        record = self._records.pop()
        if record.error is not None:
            raise TgError.of(record.error)
        return record

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Call `listener`, instead of the one before, when a record arrives or the stream fails.

        Called synchronously on arrival; it must not raise or block. Saves one task wake-up per record.
        """
        self._wake = listener or _ignore

    def listen_accepted(self, listener: Callable[[], None], on_opening: Callable[[], None] | None = None) -> None:
        """Call `listener` once, when a processor reports that it works on the request; at once if it already has.

        A processor reports this if its first record takes longer than `ACCEPTED_AFTER_SECONDS`. If it opens its model
        first, `on_opening` is called in the same way before that. As with `listen`, they must not raise or block.
        """
        self._on_accepted, self._on_opening = listener, on_opening or _ignore
        if self._opening:
            self._on_opening()
        if self._accepted:
            listener()

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

    async def _come(self) -> None:
        woken = self._loop.create_future()
        # Several records may come before the task has its turn.
        self.listen(lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            self.listen(None)

    def _join_waiting(self) -> None:
        """Join the buffered records, and cut records that are too long for one event."""
        self.came, body = self._frames[0]
        try:
            # A reader that keeps up nearly always has one record waiting.
            if len(self._frames) == 1 and len(body) <= MAX_EVENT_BYTES:
                self._frames.clear()
                self.taken += 1
                self._size = self._cut_size = 0
                self._records.append(decode(self._record, body))
            else:
                self._join_several()
        except BadRequest:
            self._frames.clear()
            self._size = 0
            self._error = ProtocolError("a response on the bus is not a record of its service")

    def _join_several(self) -> None:
        _, body = self._frames[0]
        bodies, size = [body], len(body)
        for _, body in self._frames[1:]:
            if size + len(body) > MAX_EVENT_BYTES:
                break
            bodies.append(body)
            size += len(body)
        del self._frames[: len(bodies)]
        self._size -= size
        self.taken += len(bodies)
        # A record that is cut stays in memory until its last piece is read, so it stays counted.
        self._cut_size = size if size > MAX_EVENT_BYTES else 0
        records = self._record.join([decode(self._record, body) for body in bodies])
        if size > MAX_EVENT_BYTES:
            records = [piece for record in records for piece in record.cut(MAX_EVENT_BYTES)]
        # The records are in reverse order here: the next one is the last of the list.
        self._records = [*reversed(records)]


def _ignore() -> None:
    """Nobody listens."""
