"""A stream that is kept -> a log while it is made -> its events, for any reader, from any number on.

The log has the records of the answer, and in its head the parameters of their writer. Every reader makes the same
events from them, so the number of an event is the same at all gateways, for ever. An answer for repeated requests is
kept in the same way; if its writer has no form, each request makes its answer from the records by a writer of its own.
"""

import re
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import msgspec

from tg_gateway.dialects.background import Answer, Background, StreamedAnswer
from tg_gateway.dialects.event_cutter import EventCutter, RecordCutter
from tg_gateway.dialects.idempotency_key import REPEATED_SECONDS, IdempotencyKey
from tg_gateway.dialects.kept_answers import KEPT_SECONDS, KeptAnswer, KeptAnswers
from tg_gateway.dialects.stream_head import StreamHead, read_end
from tg_gateway.dialects.stream_reader import OnWhole, StreamReader
from tg_gateway.dialects.writer import Writer
from tg_schema import encode
from tg_schema.errors import BadRequest, NotFound, Unavailable

KEEP_HEADER: Final = "X-Tokengrid-Keep"
"""The header of a request that asks for its stream to be kept, and for how long."""
KEEP_FIELD: Final = f"{KEEP_HEADER} (on a WebSocket, `keep`)"
"""How errors name that header."""
_PERIOD: Final = re.compile(r"([0-9]{1,6})([smh])", re.ASCII)
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600}
_NAME: Final = re.compile(r"ks-([0-9a-f]{1,12})-[0-9a-f]{32}|ik-[0-9a-f]{48}", re.ASCII)
"""The time of its expiry is part of a stream's name, so that it is known when its log is erased; but not of one that is
named by an `IdempotencyKey`."""


class ExpiredStream(NotFound):
    """The stream was kept until a time that has passed, and it has ended."""

    status = 410


class KeptStreams:
    """The streams that are kept for all keys, in the dialects of their doors.

    Args:
        restorers: `Dialect.restore` of each door, by its name.
        clock: seconds since 1970, the same for all gateways.
    """

    def __init__(self, restorers: Mapping[str, Callable[[bytes], Writer[Any]]], clock: Callable[[], float]) -> None:
        self._restorers = restorers
        self._clock = clock

    def keep(
        self, writer: Writer[Any], door: str, period: str, attach: Callable[[str], Writer[Any]] | None = None
    ) -> Background:
        """How the stream of this writer is kept.

        Args:
            writer: writes the answer.
            door: the name of its door.
            period: the value of `KEEP_HEADER`.
            attach: makes the writer of a client on a WebSocket, of the stream's id; as `restore` of `follow`.

        Raises:
            BadRequest: the value is wrong, or such an answer cannot be kept.
        """
        seconds = _read_period(period)
        if writer.form is None:
            raise BadRequest(f"{KEEP_FIELD}: no answer of this kind is kept: ask for a stream, or leave it out")
        name = f"ks-{int(self._clock() + seconds):x}-{uuid.uuid4().hex}"
        form, headers = encode(writer.form), {**writer.headers, "X-Stream-Id": name}
        if attach is None:
            reader = StreamReader(self._restorers[door](form), name, EventCutter(-1, shows=True))
        else:
            reader = StreamReader(attach(name), name, told_is_over=True)

        def answer(kept: KeptAnswers) -> StreamedAnswer:
            # The client needs the name before the first event, which may take long.
            return reader.answer(_lead(writer.keep_alive, reader.follow(kept)), headers)

        head = encode(StreamHead(door, msgspec.Raw(form)))
        return Background(name, head, keeps_parts=True, answer=answer, keeps_whole=False, seconds=seconds, listed=True)

    def share(
        self,
        writer: Writer[Any],
        door: str,
        key: IdempotencyKey,
        period: str | None,
        *,
        streaming: bool,
        on_whole: OnWhole = None,
    ) -> Background:
        """How the answer is kept that every request with this key gets, from its beginning.

        Args:
            writer: writes the answer to this request.
            door: the name of its door; "" = a socket, whose events have no numbers.
            key: the request's.
            period: the value of `KEEP_HEADER`; None = the request has no such header.
            streaming: whether the answer is sent as it is generated.
            on_whole: called before the end of the answer is sent.

        Raises:
            BadRequest: the period or the key is wrong.
        """
        key.check()
        seconds = REPEATED_SECONDS if period is None else _read_period(period)
        name = key.name
        form = writer.form if door else None
        head = encode(StreamHead(door, msgspec.Raw(encode(form)), key.digest, self._clock(), seconds))
        cutter = None if form is None else EventCutter(-1, shows=True)
        reader = StreamReader(writer, name, cutter, asks=True, on_whole=on_whole)

        def answer(kept: KeptAnswers) -> StreamedAnswer:
            headers = {**writer.headers, "X-Stream-Id": name}
            return reader.answer(self._join(kept, reader, numbers=form is not None), headers)

        return Background(
            name,
            head,
            keeps_parts=streaming,
            answer=answer,
            joins=partial(self._joins, key),
            chosen=key.field,
            keeps_whole=not streaming,
            seconds=seconds,
            listed=True,
        )

    def _joins(self, key: IdempotencyKey, found: KeptAnswer) -> bool | None:
        """Whether a request gets this kept answer; None = the answer no longer counts."""
        head, end = StreamHead.of(found), read_end(found)
        failed = found.outcome not in {"running", "ended"} or end.error is not None
        if head.is_over(found, self._clock()) or (failed and not key.field):
            return None
        return head.digest == key.digest and (found.left or bool(key.field))

    async def _join(self, kept: KeptAnswers, reader: StreamReader, *, numbers: bool) -> AsyncGenerator[bytes, None]:
        head = await self.find(kept, reader.name)
        if numbers and head.numbers:
            reader.writer = self._restore(head)
        async with aclosing(reader.follow(kept)) as parts:
            async for part in parts:
                yield part

    async def read(self, kept: KeptAnswers, name: str, after: int) -> Answer | StreamedAnswer:
        """The events with numbers over `after`, including later ones; 204 if the stream has ended without any.

        Raises:
            NotFound: the key has no such stream.
            ExpiredStream: the stream's time is over, and it does not run.
            BadRequest: the stream has no event of the number `after`.
            Unavailable: this gateway cannot write the events of its door.
        """
        reader = StreamReader(self._restore(await self.find(kept, name)), name, EventCutter(after, shows=True))
        parts = _read_ahead(reader.follow(kept))
        # An `EventSource` asks again after each end, unless it gets 204.
        return reader.answer(parts, Writer.headers) if await anext(parts, b"") else Answer(b"", 204)

    async def follow(
        self, kept: KeptAnswers, name: str, after: int, restore: Callable[[bytes], Writer[Any]]
    ) -> AsyncGenerator[bytes, None]:
        """The events that another writer makes of the records after `after`, one for each record.

        Args:
            kept: the kept answers of the reader's key.
            name: the stream's.
            after: the number of the last event that the reader has; -1 = none.
            restore: makes the writer of the stream's form.

        Raises:
            BadRequest: as `read`; or the stream has ended, and has no event after `after`.
            TgError: as `read`.
        """
        head = await self.find(kept, name)
        reader = StreamReader(restore(bytes(head.form)), name, RecordCutter(after), told_is_over=True)
        told = False
        async with aclosing(reader.follow(kept)) as parts:
            async for part in parts:
                told = told or bool(part)
                yield part
        if not told:
            raise BadRequest("the stream has ended, and you have all of it")

    async def cancel(self, kept: KeptAnswers, name: str) -> None:
        """Stop the stream; return when its model has stopped. Raises as `read`."""
        await self.find(kept, name)
        await kept.cancel(name)

    async def find(self, kept: KeptAnswers, name: str) -> StreamHead:
        """The head of a stream. Raises NotFound and ExpiredStream as `read`."""
        found = _NAME.fullmatch(name)
        over = found is not None and found[1] is not None and int(found[1], 16) <= self._clock()
        gone = ExpiredStream("the time for which this stream was kept is over: ask again")
        try:
            # A name of another form cannot exist, so its log is not searched for.
            answer = await kept.read(name if found else "")
        except NotFound:
            if over:
                raise gone from None
            raise
        head = StreamHead.of(answer)
        # While the stream is made, it can be stopped and read.
        if (over and answer.outcome != "running") or head.is_over(answer, self._clock()):
            raise gone
        return head

    def _restore(self, head: StreamHead) -> Writer[Any]:
        if not head.numbers:
            raise BadRequest("this answer has no numbered events: send its request again to get it")
        restore = self._restorers.get(head.door)
        try:
            if restore is not None:
                return restore(bytes(head.form))
        except BadRequest:
            # The stream was begun by a gateway of another version.
            pass
        raise Unavailable(f"this gateway cannot write streams of the door {head.door!r}: read it through another one")


def _read_period(period: str) -> int:
    found = _PERIOD.fullmatch(period)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= KEPT_SECONDS:
        raise BadRequest(f"{KEEP_FIELD} says how long to keep the stream: 90s, 10m or 2h, and 24h at most")
    return seconds


async def _lead(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for part in rest:
            yield part


async def _read_ahead(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The first part, to see whether there is one; then all of them, the first one again."""
    # Once begun, it closes its source when it is closed: the answer to a HEAD reads no part.
    async with aclosing(parts):
        if first := await anext(parts, b""):
            yield first
            yield first
        async for part in parts:
            yield part


NO_STREAMS: Final = KeptStreams({}, float)
"""The kept streams of a process without a gateway: none."""
