"""The events of a stream that is kept -> JSON, for readers of the Durable Streams protocol (its "PROTOCOL.md", 5.6 on).

They read what there is, then wait for more, or follow. An offset is the number of the last event that they have.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Final, NamedTuple

import msgspec

from tg_gateway.dialects import END_OF_EVENT, Answer, Call, StreamedAnswer, Writer, server_sent_event
from tg_schema import TgError, decode, encode
from tg_schema.errors import BadRequest

LONG_POLL_SECONDS: Final = 20.0
"""Seconds that a long poll waits for an event."""
BEGINNING: Final = "-"
"""The offset before the first event: as text it comes before all numbers."""
_EVENT: Final = re.compile(rb"id: ([0-9]+)\n(?:event: .*\n)?data: (.*)")
MAX_CURSOR_DIGITS: Final = 15


class Control(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The event after each event of data: it reports the reader's position."""

    stream_next_offset: str
    stream_cursor: str | None = None
    up_to_date: bool = False
    stream_closed: bool = False


class _Step(NamedTuple):
    """The values that arrived together.

    Attributes:
        last: the number of the last value; -1 = there is none.
        current: whether the stream has no further value yet.
        closed: whether the stream will never have another value.
    """

    values: Sequence[bytes]
    last: int
    current: bool = False
    closed: bool = False

    @property
    def offset(self) -> str:
        return BEGINNING if self.last < 0 else f"{self.last:012d}"


async def read_durably(call: Call, after: int | None, live: str | None) -> Answer | StreamedAnswer:
    """The events after a given one.

    Args:
        call: the request.
        after: the number of that event; -1 = all of them, None = those to come.
        live: "sse" or "long-poll"; None = what there is now.

    Raises:
        TgError: as `KeptStreams.read`.
    """
    answer = await call.streams.read(call.kept, call.path["stream"], -1 if after is None else after)
    steps = _read(answer, after)
    given = call.query.get("cursor", "")
    # A cache in between may hold the answer for another cursor, so each poll has a cursor of its own.
    cursor = str(int(given) + 1 if given.isdecimal() and len(given) <= MAX_CURSOR_DIGITS else 1)
    if live == "sse":
        return StreamedAnswer(_write(steps, cursor), Writer.content_type, Writer.headers, Writer.keep_alive)
    step = await _collect(steps, -1 if after is None else after, waits=live is not None)
    told = {"Stream-Next-Offset": step.offset, "Cache-Control": "private, no-cache"}
    told |= {"Stream-Up-To-Date": "true"} if step.current else {}
    told |= {"Stream-Closed": "true"} if step.closed else {} if live is None else {"Stream-Cursor": cursor}
    if live is not None and not step.values:
        return Answer(b"", 204, headers=told)
    if after is not None:
        told["ETag"] = f'"{after}:{step.offset}{":c" if step.closed else ""}"'
        if call.headers.get("If-None-Match") == told["ETag"]:
            return Answer(b"", 304, headers=told)
    return Answer(_join(step.values), headers=told)


def _join(values: Sequence[bytes]) -> bytes:
    return b"[%b]" % b",".join(values)


async def _read(answer: Answer | StreamedAnswer, after: int | None) -> AsyncGenerator[_Step, None]:
    """The steps of an answer of `KeptStreams.read`; without an `after`, no values before the first current one."""
    step = _Step((), -1 if after is None else after)
    begun = step.last
    try:
        if isinstance(answer, StreamedAnswer):
            async with aclosing(answer.parts) as parts:
                async for part in parts:
                    found = [match for event in part.split(END_OF_EVENT) if (match := _EVENT.fullmatch(event))]
                    last = int(found[-1][1]) if found else step.last
                    values = [_value(match[2]) for match in found] if step.current or after is not None else []
                    step = _Step(values, last, step.current or part == answer.keep_alive)
                    if values or step.current:
                        yield step
    except TgError:
        if step.last == begun:
            raise
        # With the next request the reader gets the reason, or learns that the stream is closed.
        yield _Step((), step.last)
    else:
        yield _Step((), step.last, current=True, closed=True)


def _value(data: bytes) -> bytes:
    """The JSON of an event's data; data that is no JSON, such as OpenAI's `[DONE]`, becomes a text."""
    try:
        decode(msgspec.Raw, data)
    except BadRequest:
        return encode(data.decode())
    return data


async def _collect(steps: AsyncGenerator[_Step, None], last: int, *, waits: bool) -> _Step:
    """All events that there are. With `waits`, wait up to `LONG_POLL_SECONDS` for at least one."""
    values, step = list[bytes](), _Step((), last)
    with suppress(TimeoutError):
        async with aclosing(steps), asyncio.timeout(LONG_POLL_SECONDS):
            async for step in steps:
                values += step.values
                if step.current and (values or not waits):
                    break
    return step._replace(values=values)


async def _write(steps: AsyncGenerator[_Step, None], cursor: str) -> AsyncGenerator[bytes, None]:
    async with aclosing(steps):
        async for step in steps:
            data = server_sent_event(_join(step.values), b"data") if step.values else b""
            control = Control(step.offset, None if step.closed else cursor, step.current, step.closed)
            yield data + server_sent_event(encode(control), b"control")
