"""Provider stream -> guarded stream: three timeouts on content, a terminal marker or an error, and counts in range.

Every provider's SDK reports a cleanly truncated stream as complete, and keep-alives defeat most SDKs' timeouts. Both
become errors here.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterable
from contextvars import Context
from math import inf
from time import time
from types import TracebackType
from typing import Annotated, Any, Final, Self

import msgspec
import structlog

from tg_base.llm.core import LlmChunk, PassOn
from tg_base.llm.provider_call import ProviderCall
from tg_base.runtime import LATE_SECONDS
from tg_schema import TgError
from tg_schema.completion import COUNTS, UNCOUNTED, counts_of
from tg_schema.conversation import MAX_CALL_INDEX
from tg_schema.deltas import MAX_COUNT
from tg_schema.errors import BadRequest, IncompleteStream, ProtocolError, Timeout

log = structlog.get_logger()

TOO_DEEP = "the request is nested too deep for this provider"
"""For an SDK that fails to encode what we could decode: it encodes in Python, on a deeper stack."""

Seconds = Annotated[float, msgspec.Meta(gt=0)]
_NO_ANSWERS: Final[frozenset[int]] = frozenset()
"""Replaced at the end of an answer: an empty set for each stream would take 216 bytes."""


class Clocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Timeouts in seconds: to the first content, between two contents, and for the whole stream."""

    first_token: Seconds = 60.0
    idle: Seconds = 30.0
    total: Seconds = 1800.0


async def guard_stream(
    source: AsyncGenerator[LlmChunk, Any],
    clocks: Clocks,
    answers: int = 1,
    call: ProviderCall | None = None,
) -> AsyncGenerator[LlmChunk, PassOn | None]:
    """Yield the chunks of `source`, and close it whatever happens.

    The clocks run only while we wait for the provider: a slow consumer does not count against it. Chunks without
    content are forwarded, but reset no clock. A function sent to this generator gets the chunks that `source` can pass
    on while we wait for it.

    A `finish_reason` completes the answer of its `index`. After that, only the counts of its chunks are forwarded. Once
    all of `answers` are complete, an error or a timeout ends the stream without being raised. `call` is notified of
    each chunk, and of the end.

    Raises:
        Timeout: a clock ran out; `clock` and the message name it.
        BadRequest: the request is nested too deep for the provider's SDK.
        ProtocolError: a number in a tool call or a token is out of range, or an answer was not asked for.
        IncompleteStream: the source ended, and an answer has no `finish_reason`.
    """
    watch = _Watch(clocks)
    call = call or ProviderCall()
    guard = _Guard(watch, answers, call)
    with call.spanning:
        try:
            while True:
                try:
                    # Keep the clock off during the `yield` below, where the consumer works at its own pace. `anext`
                    # with a default would be one more step of each wait.
                    with watch:
                        chunk = await source.asend(None if guard.on_chunk is None else guard.pass_on)
                except StopAsyncIteration:
                    break
                except TgError:
                    if guard.finished:
                        break
                    raise
                guard.on_chunk = yield guard.admit(chunk)
                # Do not keep this chunk while waiting for the next.
                del chunk
            if not guard.finished:
                raise IncompleteStream("the provider's stream ended without its terminal marker; ask again")
        finally:
            watch.close()
            # A reader that leaves after the end has the whole answer.
            call.end(None if guard.finished else sys.exception())
            # Do not use `aclosing`, which would take 150 bytes of each stream.
            await source.aclose()


class _Guard:
    """Checks each chunk of one stream, whether or not a task waits for it.

    Attributes:
        finished: whether all answers have ended.
        on_chunk: gets the chunks that arrive while the source is awaited; None = the waiting task gets them.
    """

    __slots__ = ("_answers", "_call", "_ended", "_watch", "finished", "on_chunk")

    def __init__(self, watch: "_Watch", answers: int, call: ProviderCall) -> None:
        self.finished = False
        self.on_chunk: PassOn | None = None
        self._watch = watch
        self._call = call
        self._answers = answers
        self._ended = _NO_ANSWERS

    def admit(self, chunk: LlmChunk) -> LlmChunk:
        """The chunk as it is forwarded. Raises ProtocolError as `guard_stream`."""
        if self._ended and (self.finished or chunk.index in self._ended):
            chunk = LlmChunk().with_usage(chunk.usage)
        elif chunk.text or chunk.has_content:
            self._watch.saw_content = True
            call = self._call
            call.pieces += 1
            call.letters += len(chunk.text)
            if call.first is None:
                call.first, call.answered_by = time(), chunk.model
            if chunk.reasoning or chunk.tool_calls:
                call.note_content(chunk)
        if chunk.index and not 0 < chunk.index < self._answers:
            raise ProtocolError(f"the provider sent an answer beyond the {self._answers} asked for")
        # Nearly all chunks are text, some with a token, and few have another number: an absent one costs a comparison.
        if chunk.tool_calls or chunk.tokens:
            _check_ids(chunk)
        if (counts := counts_of(chunk)) != UNCOUNTED:
            chunk = _add_counts(chunk, counts, self._call.counts)
        # Set last: once `finished` is set, errors are ignored, but those above must still be raised.
        if chunk.finish_reason is not None:
            self._call.finish_reason = chunk.finish_reason
            self._ended |= {chunk.index}
            self.finished = len(self._ended) >= self._answers
        return chunk

    def pass_on(self, chunk: LlmChunk) -> bool:
        """A `PassOn`, while `source` is waited for."""
        admitted = self.admit(chunk)
        if self._watch.saw_content:
            self._watch.go_on()
        return self.on_chunk is not None and self.on_chunk(admitted)


def check_numbers(chunk: LlmChunk) -> LlmChunk:
    """The chunk with counts from 0 to `MAX_COUNT`; any other count becomes None (unknown) and is logged.

    A wrong count does not fail an answer: its text is correct, and has been paid for.

    Raises:
        ProtocolError: a tool call's index is below 0 or above `MAX_CALL_INDEX`, or a token's id exceeds 64 bits.
    """
    _check_ids(chunk)
    return _add_counts(chunk, counts_of(chunk), [*UNCOUNTED])


def _check_ids(chunk: LlmChunk) -> None:
    if chunk.tool_calls and any(not 0 <= call.index <= MAX_CALL_INDEX for call in chunk.tool_calls):
        raise ProtocolError(f"the provider numbers a tool call outside of 0 to {MAX_CALL_INDEX}")
    for token in chunk.tokens:
        if not -1 <= token.id < 2**63 or (token.top and any(not -1 <= top[0] < 2**63 for top in token.top)):
            raise ProtocolError("the provider sent a token whose id is no 64-bit number")


def _add_counts(chunk: LlmChunk, counts: Iterable[int | None], totals: list[int | None]) -> LlmChunk:
    """Add the chunk's counts to the totals; returns the chunk without counts out of range, which are logged."""
    # Local models count each chunk: one loop, without a call in it.
    wrong: list[str] = []
    for place, count in enumerate(counts):
        if count is None:
            continue
        if 0 <= count <= MAX_COUNT:
            totals[place] = (totals[place] or 0) + count
        else:
            wrong.append(COUNTS[place])
    if not wrong:
        return chunk
    log.warning("provider.wrong_count", counts=wrong)
    return msgspec.structs.replace(chunk, **dict.fromkeys(wrong))


class _Watch:
    """Entered around each wait: cancels the waiting task when one of the clocks runs out, and says what went wrong.

    Set `saw_content` when content has arrived: the idle clock restarts with the next wait.

    The whole stream shares one timer, which is re-armed when it fires too early. That is rare, whereas
    `asyncio.timeout` would create and cancel a timer for each chunk.
    """

    __slots__ = (
        "_cancelling", "_clocks", "_content_due", "_fired", "_left_at", "_loop", "_task", "_timer", "_timer_due",
        "_total_due", "_waiting_for_first", "saw_content",
    )  # fmt: skip

    def __init__(self, clocks: Clocks) -> None:
        self._loop = asyncio.get_running_loop()
        self._clocks = clocks
        self.saw_content = False
        self._waiting_for_first = True
        self._left_at = now = self._loop.time()
        self._content_due, self._total_due = now + clocks.first_token, now + clocks.total
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf
        self._fired = False

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = inf

    def __enter__(self) -> Self:
        self._task = task = asyncio.current_task(self._loop)
        self._cancelling = task.cancelling() if task is not None else 0
        now = self._loop.time()
        # The time between two waits belongs to the consumer.
        self._content_due += now - self._left_at
        self._total_due += now - self._left_at
        if self.saw_content:
            self._content_due = now + self._clocks.idle
            self.saw_content = self._waiting_for_first = False
        self._set_timer(now)
        return self

    def go_on(self) -> None:
        """Restart the idle clock: content has arrived, and the task continues to wait."""
        now = self._loop.time()
        self._content_due, self.saw_content = now + self._clocks.idle, False
        # From then on each restart makes the time later, so that the timer need not be moved for it.
        if self._waiting_for_first:
            self._waiting_for_first = False
            self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        due = min(self._content_due, self._total_due)
        # A timer that fires too early re-arms itself; only one that would fire too late is replaced here.
        if due < self._timer_due:
            # Set early, so that it need not be replaced once the idle clock runs.
            self._arm(min(due, now + self._clocks.idle))

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_at(due + LATE_SECONDS, self._check, context=Context())

    def _check(self) -> None:
        self._timer, self._timer_due = None, inf
        # No wait is in progress, because the consumer is slow. The next wait arms the timer again.
        if self._task is None:
            return
        due = min(self._content_due, self._total_due)
        if self._loop.time() < due:
            self._arm(due)
        else:
            self._fired = True
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._left_at = self._loop.time()
        task, self._task = self._task, None
        if kind is RecursionError:
            raise BadRequest(TOO_DEEP) from None
        if not self._fired or task is None:
            return
        self._fired = False
        # Only our own cancellation becomes a Timeout. Let a cancellation from elsewhere pass, even one at the same
        # moment: otherwise the task of a client that disconnects just then would run on for nobody.
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._make_timeout() from error

    def _make_timeout(self) -> Timeout:
        if self._total_due <= self._content_due:
            clock, missed = "total", f"not finished within {self._clocks.total:g} s"
        elif self._waiting_for_first:
            clock, missed = "first_token", f"no first token within {self._clocks.first_token:g} s"
        else:
            clock, missed = "idle", f"no content for {self._clocks.idle:g} s"
        timeout = Timeout(f"the provider was too slow: {missed}")
        timeout.clock = clock
        return timeout
