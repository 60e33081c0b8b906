"""Record <-> bytes: UTF-8 JSON text of one record, every field written, `null` included (trustgraph-wire 1.2).

`"error":null` must stand on the wire: a stock Pulsar `JsonSchema` reader turns a missing nested record into an empty,
truthy one.
"""

from functools import cache
from typing import Any, TypeVar

import msgspec

from tg_schema.errors import BadRequest

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
encode = _encoder.encode


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode(kind: type[T], data: bytes | str) -> T:
    """Read one record; unknown fields are ignored, missing ones take the record's defaults.

    Raises:
        BadRequest: not JSON, nested too deep, not UTF-8, or a field has the wrong type; the message says which.
    """
    try:
        record: T = _decoder(kind).decode(data)
    except msgspec.ValidationError as error:
        raise BadRequest(f"wrong field: {error}") from None
    except msgspec.DecodeError as error:
        raise BadRequest(f"not valid JSON: {error}") from None
    except UnicodeDecodeError:
        raise BadRequest("not valid JSON: the text is not UTF-8") from None
    except RecursionError:
        raise BadRequest("not valid JSON: nested too deep") from None
    return record
