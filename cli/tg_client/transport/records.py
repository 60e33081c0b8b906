"""Records <-> the gateway's bytes, with one of our errors for everything that is malformed."""

from collections.abc import Sequence
from math import isfinite

import msgspec

from tg_schema import TgError, decode, encode
from tg_schema.errors import BadRequest, ProtocolError
from tg_schema.service_spec import Resp


def bytes_of(record: object) -> bytes:
    """A record as bytes.

    Raises:
        BadRequest: the record holds what JSON cannot represent: half a surrogate pair, infinity, another type, a
            reference to itself.
    """
    try:
        data = encode(record)
        # The encoder writes an infinite number or NaN as null, which would mean that there is none.
        if b"null" in data and not _is_finite(msgspec.to_builtins(record)):
            raise BadRequest("the request has a number that is infinite or NaN, which JSON cannot represent")
    except (TypeError, ValueError, RecursionError):
        raise BadRequest("the request has a text that is not Unicode, or a value that JSON cannot represent") from None
    return data


def record_of(kind: type[Resp], data: bytes) -> Resp:
    """Decode one record of a stream.

    Raises:
        ProtocolError: the data is not such a record.
        TgError: it is the last record of a failed stream.
    """
    try:
        record = decode(kind, data)
    except BadRequest:
        raise ProtocolError("the gateway sent something that is not a record of this service") from None
    if record.error is not None:
        raise TgError.of(record.error)
    return record


_PARTS = b'"parts":['
"""Cannot occur inside a text, where its quotes would be escaped."""


class _Whole(msgspec.Struct, frozen=True):
    """The field of a whole answer that holds several records besides their sum."""

    parts: tuple[msgspec.Raw, ...] = ()


def records_of(kind: type[Resp], data: bytes) -> Sequence[Resp]:
    """Decode one record of a stream, or a whole answer, which may hold several records.

    Raises:
        ProtocolError: the data is not such a record.
        TgError: it is the last record of a failed stream.
    """
    record = record_of(kind, data)
    if not record.last or _PARTS not in data or hasattr(record, "parts"):
        return (record,)
    return tuple(record_of(kind, bytes(part)) for part in decode(_Whole, data).parts) or (record,)


def _is_finite(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or isfinite(value)
