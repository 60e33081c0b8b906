"""Records <-> the gateway's bytes, with an error of the set for whatever does not fit."""

from tg_schema import TgError, decode, encode
from tg_schema.errors import BadRequest, ProtocolError
from tg_schema.service_spec import Resp


def bytes_of(record: object) -> bytes:
    """A record as it travels.

    Raises:
        BadRequest: it has something in it that JSON cannot say: half a character, an object of no JSON type, a circle.
    """
    try:
        return encode(record)
    except (TypeError, ValueError, RecursionError):
        raise BadRequest("the request has a text that is not Unicode, or a value that JSON cannot say") from None


def record_of(kind: type[Resp], data: bytes) -> Resp:
    """Read one record of a stream.

    Raises:
        ProtocolError: it is none.
        TgError: it is the last record of a stream that failed.
    """
    try:
        record = decode(kind, data)
    except BadRequest:
        raise ProtocolError("the gateway sent something that is not a record of this service") from None
    if record.error is not None:
        raise TgError.of(record.error)
    return record
