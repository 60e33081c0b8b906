"""A large body -> the few fields that a refusal needs, extracted by the process that parses the body."""

from collections.abc import Iterable
from typing import Final

import msgspec

from tg_schema import encode, try_decode

MAX_VALUE_BYTES: Final = 256
"""Bytes of the largest value that is kept unchanged."""
_EMPTY: Final = {b"[": msgspec.Raw(b"[]"), b"{": msgspec.Raw(b"{}")}
_LONG: Final = msgspec.Raw(b'"..."')


def abridge_body(body: bytes, names: Iterable[str]) -> bytes:
    """An object with the body's values of these fields; a long value is replaced by a short one of its type.

    The result is empty only for an empty body. If the body is not a JSON object, neither is the result.
    """
    fields = try_decode(dict[str, msgspec.Raw], body)
    if fields is None:
        # A first byte by itself is never an object.
        return body[:1]
    return encode({name: _shorten(fields[name]) for name in names if name in fields})


def _shorten(value: msgspec.Raw) -> msgspec.Raw:
    view = memoryview(value)
    return value if len(view) <= MAX_VALUE_BYTES else _EMPTY.get(bytes(view[:1]), _LONG)
