"""Record <-> bytes: UTF-8 JSON text of one record. The record's type decides which fields are left out.

`"error":null` must stand on the wire: a stock Pulsar `JsonSchema` reader turns a missing nested record into an empty,
truthy one (trustgraph-wire 1.2).
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final, TypeVar, get_origin

import msgspec

from tg_schema.errors import BadRequest
from tg_schema.occurrences import has_more_of

MAX_SENTENCE_CHARACTERS = 400
"""Characters of an error's message about a wrong field."""
# Python's own limit is no measure: up to 3.13 it is about 1000 levels, from 3.14 on the size of the thread's stack,
# some 20,000 levels, at which a library without a limit of its own ends the process.
MAX_DEPTH: Final = 500
"""Maximum nesting of lists and objects, in a request on the bus and in a value in JSON text."""
_BRACKETS: Final = (b"[", b"{")
_SIGNS: Final = b'"[]{}'
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in _SIGNS)
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_MAX_DEPTH_READ: Final = MAX_DEPTH + 20
"""Maximum nesting with the levels that a door's fields, an envelope or a kept record add around a request."""
_TOO_DEEP: Final = "nested too deep"

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
encode = _encoder.encode


_decoders: dict[object, tuple[msgspec.json.Decoder[Any], bool]] = {}


def _make_decoder(kind: type[T]) -> tuple[msgspec.json.Decoder[T], bool]:
    """The decoder, and whether the text is an envelope, whose content is decoded, and checked for its depth, later."""
    envelope = get_origin(kind) is list or kind == dict[str, msgspec.Raw]
    # Cached: making a decoder takes much longer than using it.
    made = _decoders[kind] = (msgspec.json.Decoder(kind), envelope)
    return made


def decode(kind: type[T], data: bytes | str) -> T:
    """Read one record; unknown fields are ignored, missing ones take the record's defaults.

    `later_words` of the record's type gives, by field, the value that replaces an unknown word of a newer peer.

    Raises:
        BadRequest: not JSON, nested too deep, not UTF-8, or a field of the wrong type; the message says which.
    """
    known: tuple[msgspec.json.Decoder[T], bool] = _decoders.get(kind) or _make_decoder(kind)
    decoder, envelope = known
    try:
        try:
            record = decoder.decode(data)
        except msgspec.ValidationError:
            if not (words := getattr(kind, "later_words", None)):
                raise
            record = decoder.decode(_replace_words(data, words))
    except msgspec.ValidationError as error:
        raise BadRequest(f"wrong field: {_shorten(str(error))}") from None
    except msgspec.DecodeError as error:
        reason = _TOO_DEEP if is_too_deep(data, _MAX_DEPTH_READ) else str(error)
        raise BadRequest(f"not valid JSON: {reason}") from None
    except UnicodeDecodeError:
        raise BadRequest("not valid JSON: the text is not UTF-8") from None
    except RecursionError:
        raise BadRequest(f"not valid JSON: {_TOO_DEEP}") from None
    # Short text is not checked at all, since each chunk comes here.
    if len(data) > _MAX_DEPTH_READ and not envelope and is_too_deep(data, _MAX_DEPTH_READ):
        raise BadRequest(f"not valid JSON: {_TOO_DEEP}")
    return record


def try_decode(kind: type[T], data: bytes | str) -> T | None:
    """As `decode`, for data that may be unreadable; None = it is unreadable."""
    try:
        return decode(kind, data)
    except BadRequest:
        return None


def _replace_words(data: bytes | str, words: Mapping[str, str]) -> bytes:
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    known = {name: word for name, word in words.items() if bytes(fields.get(name, b"")).startswith(b'"')}
    return encode({**fields, **known})


def decode_json(text: bytes | str, kind: type[T] = Any) -> T:  # type: ignore[assignment]
    """Read a value that a model or a client wrote as text, for instance the arguments of a call.

    Raises:
        msgspec.DecodeError: it is not JSON, or not of this kind.
        UnicodeError: it is not UTF-8, or has half a surrogate pair.
        RecursionError: it is nested deeper than MAX_DEPTH.
    """
    decoder: msgspec.json.Decoder[T] = (_decoders.get(kind) or _make_decoder(kind))[0]
    value = decoder.decode(text)
    if is_too_deep(text):
        raise RecursionError(_TOO_DEEP)
    return value


def encode_request(record: object) -> bytes:
    """Encode a record that was made of a client's request, in which decodable values may not be encodable.

    Raises:
        BadRequest: the record is nested deeper than MAX_DEPTH, or has text that is not UTF-8.
    """
    try:
        data = encode(record)
    except RecursionError:
        raise BadRequest(f"the request is {_TOO_DEEP}") from None
    except UnicodeEncodeError:
        raise BadRequest("the request has text, or a header, that is not UTF-8") from None
    if is_too_deep(data):
        raise BadRequest(f"the request is {_TOO_DEEP}")
    return data


def _shorten(sentence: str) -> str:
    """Shorten a message that repeats a client's word of any length; keep its end, which has the field's place."""
    if len(sentence) <= MAX_SENTENCE_CHARACTERS:
        return sentence
    half = MAX_SENTENCE_CHARACTERS // 2
    return f"{sentence[:half]}...{sentence[-half:]}"


def is_too_deep(text: bytes | str, limit: int = MAX_DEPTH) -> bool:
    """Whether lists and objects are nested deeper than `limit`; an incomplete text counts as far as it goes.

    Nearly all texts are short or have few brackets, and cost about 1 us per KB, and 0.05 us above 128 KB. With many
    brackets it is 4 us per KB of text, and 30 ns for each bracket.
    """
    if len(text) <= limit:
        return False
    # Also accepts a part of another text, msgspec's Raw.
    data = text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)
    return has_more_of(_BRACKETS, data, limit) and depth_of(data) > limit


def depth_of(data: bytes) -> int:
    """How deep lists and objects are nested."""
    # Escapes go first, so that each quote that is left begins or ends a string. `""` may then be a string, or stand
    # between two: without it, what follows is as much within a string as before.
    quoted = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS).replace(b'""', b"")
    steps = b"".join(quoted.split(b'"')[::2]).translate(_STEPS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)
