"""A large body -> the little of it that a refusal reads: made where it is parsed, so that nobody reads it twice."""

from collections.abc import Iterable
from typing import Final

import msgspec

from tg_schema import decode, encode
from tg_schema.errors import BadRequest

MAX_VALUE_BYTES: Final = 256
"""Of a value that stays as it is."""
_EMPTY: Final = {b"[": msgspec.Raw(b"[]"), b"{": msgspec.Raw(b"{}")}
_LONG: Final = msgspec.Raw(b'"..."')


def abridge_body(body: bytes, names: Iterable[str]) -> bytes:
    """An object with these fields alone, as far as the body has them; a long value is another one of its kind.

    It is empty for an empty body alone, and no JSON object where the body is none.
    """
    try:
        fields = decode(dict[str, msgspec.Raw], body)
    except BadRequest:
        # No first byte is an object by itself.
        return body[:1]
    return encode({name: _shorten(fields[name]) for name in names if name in fields})


def _shorten(value: msgspec.Raw) -> msgspec.Raw:
    view = memoryview(value)
    return value if len(view) <= MAX_VALUE_BYTES else _EMPTY.get(bytes(view[:1]), _LONG)
