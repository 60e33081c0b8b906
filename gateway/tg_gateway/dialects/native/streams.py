"""GET /v1/streams/{id} -> the events of a stream that is kept, of any door; POST to its cancel -> it is stopped."""

from typing import Final

import msgspec

from tg_gateway.dialects import Answer, Call, StreamedAnswer
from tg_schema import encode
from tg_schema.errors import BadRequest
from tg_schema.live import StoppedStream

READ: Final = "read-stream"
"""The operation that reads one."""
CANCEL: Final = "cancel-stream"
"""The operation that stops one."""
_LAST_EVENT: Final = "Last-Event-ID"
MAX_DIGITS: Final = 12


class StreamQuery(msgspec.Struct, frozen=True):
    """The parameters of a reading; `offset` is the id of the last event that the client has."""

    offset: int = -1


async def read_stream(call: Call) -> Answer | StreamedAnswer:
    """The events behind the last one that the client has.

    Raises:
        BadRequest: the number of that one is none.
        TgError: as `KeptStreams.read`.
    """
    # Of an `EventSource` that has lost its connection, whose URL stays as it was.
    last = call.headers.get(_LAST_EVENT)
    field, given = ("offset", call.query.get("offset", "-1")) if last is None else (_LAST_EVENT, last)
    if given != "-1" and not (given.isdecimal() and len(given) <= MAX_DIGITS):
        raise BadRequest(f"{field} must be the id of the last event that you have, or -1 for none")
    return await call.streams.read(call.kept, call.path["stream"], int(given))


async def cancel_stream(call: Call) -> Answer:
    """Stop the stream that the path names; the answer comes when its model has stopped. Raises as `read_stream`."""
    await call.streams.cancel(call.kept, call.path["stream"])
    return Answer(encode(StoppedStream(call.path["stream"])))
