"""A stream that is kept -> a log while it is made -> its events, for any reader, from any number on.

The log has the records of the answer, and in its head what their writer is made of. Every reader makes the same events
of them, so the number of an event is the same at all gateways, for ever.
"""

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from tg_gateway.dialects.background import Answer, Background, RecordedEnd, StreamedAnswer
from tg_gateway.dialects.event_cutter import EventCutter
from tg_gateway.dialects.kept_answers import KEPT_SECONDS, KeptAnswer, KeptAnswers
from tg_gateway.dialects.output import join_output
from tg_gateway.dialects.writer import Writer
from tg_schema import TgError, ToolCallDelta, decode, encode
from tg_schema.errors import BadRequest, BusError, Cancelled, NotFound, TooLarge, Unavailable

KEEP_HEADER: Final = "X-Tokengrid-Keep"
"""The header of a request that asks for its stream to be kept, and for how long."""
_PERIOD: Final = re.compile(r"([0-9]{1,6})([smh])", re.ASCII)
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600}
_NAME: Final = re.compile(r"ks-([0-9a-f]{1,12})-[0-9a-f]{32}", re.ASCII)
"""The time of its expiry is part of a stream's name, so that it is known when its log is erased."""


class ExpiredStream(NotFound):
    """The stream was kept until a time that has passed, and it has ended."""

    status = 410


class StreamHead(msgspec.Struct, frozen=True):
    """The head of the log, written first.

    Attributes:
        door: the door by which the stream was asked for.
        form: as of its writer.
    """

    door: str
    form: msgspec.Raw


class KeptStreams:
    """The streams that are kept for all keys, in the dialects of their doors.

    Args:
        restorers: `Dialect.restore` of each door, by its name.
        clock: seconds since 1970, the same for all gateways.
    """

    def __init__(self, restorers: Mapping[str, Callable[[bytes], Writer[Any]]], clock: Callable[[], float]) -> None:
        self._restorers = restorers
        self._clock = clock

    def keep(self, writer: Writer[Any], door: str, period: str) -> Background:
        """How the stream of this writer is kept.

        Args:
            writer: writes the answer.
            door: the name of its door.
            period: the value of `KEEP_HEADER`.

        Raises:
            BadRequest: the value is wrong, or such an answer cannot be kept.
        """
        found = _PERIOD.fullmatch(period)
        seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
        if not 0 < seconds <= KEPT_SECONDS:
            raise BadRequest(f"{KEEP_HEADER} says how long to keep the stream: 90s, 10m or 2h, and 24h at most")
        if writer.form is None:
            raise BadRequest(f"{KEEP_HEADER}: no answer of this kind is kept: ask for a stream, or leave it out")
        name = f"ks-{int(self._clock() + seconds):x}-{uuid.uuid4().hex}"
        form, headers = encode(writer.form), {**writer.headers, "X-Stream-Id": name}
        reading = _Reading(self._restorers[door](form), name, EventCutter(-1, shows=True))

        def answer(kept: KeptAnswers) -> StreamedAnswer:
            # The client needs the name before the first event, which may take long.
            return reading.answer(_lead(writer.keep_alive, reading.follow(kept)), headers)

        head = encode(StreamHead(door, msgspec.Raw(form)))
        return Background(name, head, keeps_parts=True, answer=answer, keeps_whole=False, seconds=seconds)

    async def read(self, kept: KeptAnswers, name: str, after: int) -> Answer | StreamedAnswer:
        """The events with numbers over `after`, including later ones; 204 if the stream has ended without any.

        Raises:
            NotFound: the key has no such stream.
            ExpiredStream: its time is over, and it does not run.
            BadRequest: the stream has no event of the number `after`.
            Unavailable: this gateway cannot write the events of its door.
        """
        reading = _Reading(self._restore(await self._find(kept, name)), name, EventCutter(after, shows=True))
        parts = reading.begin(kept)
        if await anext(parts):
            return reading.answer(parts, Writer.headers)
        await parts.aclose()
        # An `EventSource` asks again after each end, unless it gets 204.
        return Answer(b"", 204)

    async def follow(
        self, kept: KeptAnswers, name: str, after: int, restore: Callable[[bytes], Writer[Any]]
    ) -> AsyncGenerator[bytes, None]:
        """What another writer makes of the records behind `after`, each of which is one event.

        Args:
            kept: those of the reader's key.
            name: the stream's.
            after: the number of the last event that the reader has; -1 = none.
            restore: makes the writer of the stream's form.

        Raises:
            BadRequest: as `read`; or the stream has ended, and has no event behind `after`.
            TgError: as `read`.
        """
        head = await self._find(kept, name)
        reading, told = _Reading(restore(bytes(head.form)), name, _RecordCutter(after)), False
        try:
            async with aclosing(reading.follow(kept)) as parts:
                async for part in parts:
                    told = told or bool(part)
                    yield part
        except TgError:
            # The writer has told the reader why.
            if not reading.told:
                raise
        if not told:
            raise BadRequest("the stream has ended, and you have all of it")

    async def cancel(self, kept: KeptAnswers, name: str) -> None:
        """Stop the stream; return when its model has stopped. Raises as `read`."""
        await self._find(kept, name)
        await kept.cancel(name)

    async def _find(self, kept: KeptAnswers, name: str) -> StreamHead:
        found = _NAME.fullmatch(name)
        over = found is not None and int(found[1], 16) <= self._clock()
        gone = ExpiredStream("the time for which this stream was kept is over: ask again")
        try:
            # A name of another shape is nobody's: its log is not looked for.
            answer = await kept.read(name if found else "")
        except NotFound:
            if over:
                raise gone from None
            raise
        # While it is made, it can be stopped, and read.
        if over and answer.outcome != "running":
            raise gone
        return decode(StreamHead, answer.head or b"")

    def _restore(self, head: StreamHead) -> Writer[Any]:
        restore = self._restorers.get(head.door)
        try:
            if restore is not None:
                return restore(bytes(head.form))
        except BadRequest:
            # It was begun by a gateway of another version.
            pass
        raise Unavailable(f"this gateway cannot write streams of the door {head.door!r}: read it through another one")


class _RecordCutter(EventCutter):
    """What is written of one record is one event, whatever its form."""

    @override
    def add(self, events: bytes) -> bytes:
        self.number += 1
        return events if self.number - 1 > self.after else b""


class _Reading:
    """One reader's events.

    Args:
        writer: made of the stream's head.
        name: the stream's.
        cutter: leaves out the events that the reader has.

    Attributes:
        told: whether the reader was sent the event of a failure.
    """

    def __init__(self, writer: Writer[Any], name: str, cutter: EventCutter) -> None:
        self._writer = writer
        self._name = name
        self._cutter = cutter
        self._over = self.told = False
        self._refusal: TgError | None = None
        self._calls = set[tuple[int, int]]()

    def answer(self, parts: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> StreamedAnswer:
        """The answer with these parts."""
        writer = self._writer
        return StreamedAnswer(
            parts, writer.content_type, headers, writer.keep_alive, self._fail, writer.cut_after_failure
        )

    async def begin(self, kept: KeptAnswers) -> AsyncGenerator[bytes, None]:
        """The first part, empty if there is none; then all of them, the first one again."""
        async with aclosing(self.follow(kept)) as rest:
            first = await anext(rest, b"")
            yield first
            yield first
            async for part in rest:
                yield part

    def _fail(self, error: TgError) -> bytes:
        # Without a number: why this reader gets no more, which another one need not meet.
        return b"" if self.told else join_output(self._writer.fail(error))

    async def follow(self, kept: KeptAnswers) -> AsyncGenerator[bytes, None]:
        """The events. Ends orderly if the answer is whole, or has failed and the reader has its last event already.

        Raises:
            TgError: the answer has failed; or no more of it can be read.
        """
        cutter, rest = self._cutter, b""
        async with aclosing(self._read_log(kept)) as steps:
            async for step in steps:
                if isinstance(step, KeptAnswer):
                    if not self._over and (failed := self._end(step)):
                        yield failed
                        raise self._find_failure(step)
                    if cutter.number <= cutter.after:
                        raise BadRequest(f"the stream has ended with event {cutter.number - 1}: none has your number")
                    return
                *lines, rest = (rest + step).split(b"\n")
                if data := b"".join(map(self._write, filter(None, lines))):
                    yield data
                if self._refusal is not None:
                    raise self._refusal
                if not step:
                    # Every reader got its events from the log, so no other one's log can lack them.
                    if cutter.after >= cutter.number:
                        raise BadRequest("the stream has no event of your number yet: give the id of your last event")
                    yield self._writer.keep_alive
                # Kept records may come all at once: give other streams a turn in between.
                await asyncio.sleep(0)

    async def _read_log(self, kept: KeptAnswers) -> AsyncGenerator[bytes | KeptAnswer, None]:
        """As `KeptAnswers.follow`; behind the last record the log need not tell its end, since the answer is whole."""
        try:
            async with aclosing(kept.follow(self._name)) as steps:
                async for step in steps:
                    yield step
        except (NotFound, BusError):
            if not self._over:
                raise

    def _write(self, line: bytes) -> bytes:
        """The events of one record; none after a record that the writer refuses."""
        if self._refusal is not None:
            return b""
        try:
            record = self._name_calls(decode(self._writer.record_type, line))
            data = join_output(self._writer.write(record))
        except TgError as refusal:
            self._refusal = refusal
            return b""
        self._over = record.last
        return self._cutter.add(data + join_output(self._writer.end()) if record.last else data)

    def _name_calls(self, record: Any) -> Any:
        """The record with an id for each call that begins without one: a writer would make up a new one."""
        named = list[ToolCallDelta]()
        for call in getattr(record, "tool_calls", ()):
            place = record.index, call.index
            begins = not call.id and place not in self._calls
            self._calls.add(place)
            named.append(replace(call, id=f"call_{self._name[-32:]}%02d%02d" % place) if begins else call)
        return replace(record, tool_calls=tuple(named)) if named else record

    def _end(self, answer: KeptAnswer) -> bytes:
        """The event of a failure; empty if the reader has it already."""
        if answer.cut:
            raise TooLarge("the events of this stream are too many to be kept")
        failed = self._cutter.add(join_output(self._writer.fail(self._find_failure(answer))))
        self.told = bool(failed)
        return failed

    def _find_failure(self, answer: KeptAnswer) -> TgError:
        end = decode(RecordedEnd, answer.end) if answer.outcome == "ended" else RecordedEnd(0)
        if end.cancelled or answer.outcome == "cancelled":
            return Cancelled("the stream was cancelled")
        if end.error is None:
            return Unavailable("what made the stream has ended, or has lost the bus: ask again")
        # Who made it knows no door, so the log has the record's names of fields.
        error, fields = TgError.of(end.error), self._writer.fields
        return error if fields is None else fields.translate(error)


async def _lead(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for part in rest:
            yield part


NO_STREAMS: Final = KeptStreams({}, float)
"""Those of a process without a gateway."""
