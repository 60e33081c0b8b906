"""Bytes of the gateway -> a record, or the error that it carries."""

from tg_schema.codec import decode
from tg_schema.errors import BadRequest, ProtocolError, TgError
from tg_schema.service_spec import Resp


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
