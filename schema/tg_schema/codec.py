"""Record <-> bytes: UTF-8 JSON text of one record. Which of its fields are left out, the record says.

`"error":null` must stand on the wire: a stock Pulsar `JsonSchema` reader turns a missing nested record into an empty,
truthy one (trustgraph-wire 1.2).
"""

from typing import Any, TypeVar

import msgspec

from tg_schema.errors import BadRequest

MAX_SENTENCE_CHARACTERS = 400
"""Of what is said about a wrong field."""

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
encode = _encoder.encode


_decoders: dict[object, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    decoder = _decoders.get(kind)
    if decoder is None:
        # Kept: to make a decoder takes much longer than to use it.
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decoder


def decode(kind: type[T], data: bytes | str) -> T:
    """Read one record; unknown fields are ignored, missing ones take the record's defaults.

    Raises:
        BadRequest: not JSON, nested too deep, not UTF-8, or a field of the wrong type; the message says which.
    """
    try:
        return _decoder(kind).decode(data)
    except msgspec.ValidationError as error:
        raise BadRequest(f"wrong field: {_shorten(str(error))}") from None
    except msgspec.DecodeError as error:
        raise BadRequest(f"not valid JSON: {error}") from None
    except UnicodeDecodeError:
        raise BadRequest("not valid JSON: the text is not UTF-8") from None
    except RecursionError:
        raise BadRequest("not valid JSON: nested too deep") from None


def encode_request(record: object) -> bytes:
    """A record that a client's request was made of, which may be what can be read and not be written.

    Raises:
        BadRequest: nested too deep (here it is deeper on the stack), or text that is not UTF-8.
    """
    try:
        return encode(record)
    except RecursionError:
        raise BadRequest("the request is nested too deep") from None
    except UnicodeEncodeError:
        raise BadRequest("the request has text, or a header, that is not UTF-8") from None


def _shorten(sentence: str) -> str:
    """The sentence repeats a word of the client, however long it is; its place stands at the end."""
    if len(sentence) <= MAX_SENTENCE_CHARACTERS:
        return sentence
    half = MAX_SENTENCE_CHARACTERS // 2
    return f"{sentence[:half]}...{sentence[-half:]}"
