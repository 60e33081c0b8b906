"""The log of a kept answer -> what one reader gets of it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from tg_gateway.dialects.background import BEGUN_LINES, StreamedAnswer
from tg_gateway.dialects.event_cutter import EventCutter, RecordCutter
from tg_gateway.dialects.field_names import FieldNames
from tg_gateway.dialects.kept_answers import KeptAnswer, KeptAnswers
from tg_gateway.dialects.output import join_output
from tg_gateway.dialects.stream_head import read_end
from tg_gateway.dialects.writer import Writer
from tg_schema import TgError, ToolCallDelta, decode
from tg_schema.errors import BadRequest, BusError, Cancelled, NotFound, TooLarge, Unavailable

OnWhole = Callable[[], Awaitable[None]] | None


class StreamReader:
    """One reader of an answer.

    Args:
        writer: made of the stream's head, or for the reader alone.
        name: the stream's name.
        cutter: leaves out the events that the reader has; None = the reader has none, and each record is one event.
        head: the head of the answer, if another answer may take its name; None = any.
        asks: whether the reader asks for the answer itself; its failures have no number, since it may get a status.
        told_is_over: whether a failure that the writer has reported to the reader is an orderly end.
        on_begun: called when a processor works on the answer.
        on_whole: called before the end of the answer is sent.

    Attributes:
        cutter: has counted the events.
        name: as given.
        over: whether the last record was written.
        writer: as given.
    """

    def __init__(
        self,
        writer: Writer[Any],
        name: str,
        cutter: EventCutter | None = None,
        *,
        head: bytes | None = None,
        asks: bool = False,
        told_is_over: bool = False,
        on_begun: Callable[[], None] | None = None,
        on_whole: OnWhole = None,
    ) -> None:
        self.writer = writer
        self.name = name
        self.cutter = cutter or RecordCutter(-1)
        self._head = head
        self._asks = asks
        self._told_is_over = told_is_over
        self._on_begun = on_begun
        self._on_whole = on_whole
        self.over = self._told = False
        self._refusal: TgError | None = None
        self._calls = set[tuple[int, int]]()

    def answer(self, parts: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> StreamedAnswer:
        """The answer with these parts."""
        writer = self.writer
        ends = writer.cut_after_failure, writer.events_apart
        return StreamedAnswer(parts, writer.content_type, headers, writer.keep_alive, self._fail, *ends)

    def _fail(self, error: TgError) -> bytes:
        # This event has no number: it says why this reader gets no more, and other readers may get more.
        return b"" if self._told else join_output(self.writer.fail(error))

    async def follow(self, kept: KeptAnswers) -> AsyncGenerator[bytes, None]:
        """What the writer makes of the records.

        A reader that `asks` gets empty parts too: its writer may send by itself, so its client has to be waited for.
        Ends orderly if the answer is whole, or has failed and the reader has its last event already.

        Raises:
            TgError: the answer has failed, or no more of it can be read.
        """
        cutter, rest = self.cutter, b""
        async with aclosing(self._read_log(kept)) as steps:
            async for step in steps:
                if isinstance(step, KeptAnswer):
                    lines: Sequence[bytes] = read_end(step).records
                else:
                    *lines, rest = (rest + step).split(b"\n")
                data = await self._write_all(lines)
                if data or self._asks:
                    yield data
                if self._refusal is not None:
                    raise self._refusal
                if isinstance(step, KeptAnswer):
                    if not self.over and (failed := self.end_early(step)):
                        yield failed
                    self._check_end(step)
                    return
                if not (step or self._asks):
                    # Every reader got its events from the log, so no other one's log can lack them.
                    if cutter.after >= cutter.number:
                        raise BadRequest("the stream has no event of your number yet: give the id of your last event")
                    yield self.writer.keep_alive
                # Kept records may come all at once: give other streams a turn in between.
                await asyncio.sleep(0)

    async def _read_log(self, kept: KeptAnswers) -> AsyncGenerator[bytes | KeptAnswer, None]:
        """As `KeptAnswers.follow`; after the last record the log need not have an end, since the answer is whole."""
        try:
            async with aclosing(kept.follow(self.name, self._head)) as steps:
                async for step in steps:
                    if step == BEGUN_LINES and self._on_begun is not None:
                        self._on_begun()
                    yield step
        except (NotFound, BusError):
            if not self.over:
                raise

    async def _write_all(self, lines: Sequence[bytes]) -> bytes:
        data = b"".join(map(self.write_line, filter(None, lines)))
        if self.over and self._on_whole is not None:
            await self._on_whole()
            self._on_whole = None
        return data

    def write_line(self, line: bytes) -> bytes:
        """The events of one record that the reader lacks; none after a record that the writer refuses."""
        if self._refusal is not None:
            return b""
        try:
            record = self._name_calls(decode(self.writer.record_type, line))
            data = join_output(self.writer.write(record))
            data += join_output(self.writer.end()) if record.last else b""
        except TgError as refusal:
            self._refusal = refusal
            return b""
        self.over = record.last
        return self.cutter.add(data)

    def _name_calls(self, record: Any) -> Any:
        """The record with an id for each call that begins without one: a writer would make up a new one."""
        named = list[ToolCallDelta]()
        for call in getattr(record, "tool_calls", ()):
            place = record.index, call.index
            begins = not call.id and place not in self._calls
            self._calls.add(place)
            named.append(replace(call, id=f"call_{self.name[-32:]}%02d%02d" % place) if begins else call)
        return replace(record, tool_calls=tuple(named)) if named else record

    def end_early(self, answer: KeptAnswer) -> bytes:
        """The event of the failure that ended an answer; empty if the reader has it. If the reader `asks`, raise it."""
        if answer.cut:
            raise TooLarge("the events of this stream are too many to be kept")
        if self._asks:
            raise find_failure(answer, self.writer.fields)
        failed = self.cutter.add(join_output(self.writer.fail(find_failure(answer, self.writer.fields))))
        self._told = bool(failed)
        return failed

    def _check_end(self, answer: KeptAnswer) -> None:
        if self._told and not self._told_is_over:
            raise find_failure(answer, self.writer.fields)
        if self.cutter.number <= self.cutter.after:
            raise BadRequest(f"the stream has ended with event {self.cutter.number - 1}: none has your number")


def find_failure(answer: KeptAnswer, fields: FieldNames | None = None) -> TgError:
    """Why an answer without a last record has ended; `fields` are its writer's."""
    end = read_end(answer)
    if end.cancelled or answer.outcome == "cancelled":
        return Cancelled("the stream was cancelled")
    if answer.outcome == "too-large":
        return TooLarge("the answer is larger than what is kept: ask for less, or for a stream")
    if end.error is None:
        return Unavailable("what made the stream has ended, or has lost the bus: ask again")
    # The maker of the answer knows no door, so the log names fields as the record does.
    error = TgError.of(end.error)
    return error if fields is None else fields.translate(error)
