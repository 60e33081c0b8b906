"""GET /v1/streams/{id} -> the events of a stream that is kept, of any door; POST to its cancel -> it is stopped.

GET /v1/streams -> the streams of a key, once or also as further ones begin.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Literal

import msgspec

from tg_gateway.dialects import EVENTS, Answer, Call, KeptAnswers, StreamedAnswer, Writer, server_sent_event
from tg_gateway.dialects.native.durable_reads import BEGINNING, read_durably
from tg_gateway.dialects.native.stream_records import read_records
from tg_schema import decode, encode
from tg_schema.errors import AccessDenied, BadRequest
from tg_schema.live import ListedStream, ListedStreams, StoppedStream

LIST: Final = "list-streams"
"""The operation that lists streams."""
READ: Final = "read-stream"
"""The operation that reads a stream."""
CANCEL: Final = "cancel-stream"
"""The operation that stops a stream."""
_LAST_EVENT: Final = "Last-Event-ID"
_EVENTS: Final = re.compile(r"text/event-stream|(?:text|\*)/\*")
MAX_DIGITS: Final = 12


class ListQuery(msgspec.Struct, frozen=True):
    """The parameter of a list.

    Attributes:
        key: the name of the key whose streams are listed; without an admin's rights, only the client's own.
    """

    key: str | None = None


class StreamQuery(msgspec.Struct, frozen=True):
    """The parameters of a reading.

    Attributes:
        offset: the id of the last event that the client has; -1 = none, now = only events to come, for `live`.
        live: how a client of the Durable Streams protocol waits.
        cursor: what such a client got as `Stream-Cursor`.
        form: whether to send the events of its door, or its records; records are always sent from the first one on.
        key: as for `ListQuery`.
    """

    offset: int | Literal["now"] = -1
    live: Literal["sse", "long-poll"] | None = None
    cursor: str | None = None
    form: Literal["events", "records"] = "events"
    key: str | None = None


async def list_streams(call: Call) -> Answer | StreamedAnswer:
    """The streams that are kept for a key; with `Accept: text/event-stream`, also those that begin later, as events.

    Raises:
        AccessDenied: the client names a key whose streams it may not see.
        BusError: the bus did not answer.
    """
    kept = _find_kept(call)
    if EVENTS in call.headers.get("Accept", ""):
        return StreamedAnswer(_follow(kept), EVENTS, Writer.headers, Writer.keep_alive)
    listed = tuple(decode(ListedStream, each) for each in await kept.list())
    return Answer(encode(ListedStreams(listed)), headers=Writer.headers)


async def _follow(kept: KeptAnswers) -> AsyncGenerator[bytes, None]:
    async with aclosing(kept.follow_list()) as streams:
        async for stream in streams:
            yield server_sent_event(stream) if stream else Writer.keep_alive


def _find_kept(call: Call) -> KeptAnswers:
    key = call.query.get("key")
    if key in {None, call.sees}:
        return call.kept
    if call.sees is not None:
        raise AccessDenied("this key may not see the streams of another one; a key with admin = true may")
    return call.kept.of(key or "")


async def read_stream(call: Call) -> Answer | StreamedAnswer:
    """The events after the last one that the client has.

    They come as server-sent events, unless the client takes none, or says by `live` that it speaks the Durable Streams
    protocol.

    Raises:
        AccessDenied: as `list_streams`.
        BadRequest: the number of that event is malformed, or `live` is wrong.
        TgError: as `KeptStreams.read`.
    """
    query, call.kept = call.query, _find_kept(call)
    if (form := query.get("form", "events")) == "records":
        return await read_records(call)
    if form != "events":
        raise BadRequest("form must be events or records")
    # An `EventSource` that has lost its connection sends this header, because it cannot change its URL.
    last, live = call.headers.get(_LAST_EVENT), query.get("live")
    if last is None and (live is not None or not _EVENTS.search(call.headers.get("Accept", "*/*"))):
        if live not in {None, "sse", "long-poll"} or (live is not None and "offset" not in query):
            raise BadRequest("live must be sse or long-poll, and needs an offset")
        offset = query.get("offset", BEGINNING)
        after = None if offset == "now" else -1 if offset == BEGINNING else _find_number("offset", offset)
        return await read_durably(call, after, live)
    field, given = ("offset", query.get("offset", "-1")) if last is None else (_LAST_EVENT, last)
    return await call.streams.read(call.kept, call.path["stream"], _find_number(field, given))


def _find_number(field: str, given: str) -> int:
    if given != "-1" and not (given.isdecimal() and len(given) <= MAX_DIGITS):
        raise BadRequest(f"{field} must be the id of the last event that you have, or -1 for none")
    return int(given)


async def cancel_stream(call: Call) -> Answer:
    """Stop the stream that the path names; the answer comes when its model has stopped. Raises as `read_stream`."""
    await call.streams.cancel(call.kept, call.path["stream"])
    return Answer(encode(StoppedStream(call.path["stream"])))
