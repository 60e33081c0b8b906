"""JSON of a GENERATE -> its fields, and its mask as JSON: a large mask is cut out first, without parsing it."""

import re
from contextlib import suppress
from typing import Final

from tg_doors.lmtp.packed_bias import MIN_PACKED_BYTES
from tg_doors.lmtp.request import GenerateBody
from tg_schema import decode
from tg_schema.errors import BadRequest

_NAME: Final = b'"logit_bias"'
_VALUE: Final = re.compile(_NAME + rb'\s{0,9}:\s{0,9}(["{])')
_ENDS: Final = {b"{": b"}", b'"': b'"'}
_MARK: Final = b'"the mask is apart"'


def read_generate(payload: bytes) -> tuple[GenerateBody, bytes]:
    """The fields, and the JSON of `logit_bias`, which is to be taken from here.

    Raises:
        BadRequest: these are no fields of a GENERATE. The mask is validated when it is read.
    """
    parts = _cut_mask(payload) if len(payload) >= MIN_PACKED_BYTES else None
    if parts is not None:
        rest, mask = parts
        with suppress(BadRequest):
            body = decode(GenerateBody, rest)
            # Another value that the field has been given, or a field of this name somewhere deeper, is no such text.
            if bytes(body.logit_bias) == _MARK:
                return body, mask
    body = decode(GenerateBody, payload)
    return body, bytes(body.logit_bias)


def _cut_mask(payload: bytes) -> tuple[bytes, bytes] | None:
    """The message with a placeholder for the mask, and the mask; None = there is no mask of this simple form."""
    found = _VALUE.match(payload, max(payload.find(_NAME), 0))
    if found is None:
        return None
    start = found.start(1)
    end = payload.find(_ENDS[found[1]], start + 1) + 1
    rest, mask = payload[:start] + _MARK + payload[end:], payload[start:end]
    # With no escapes in it, what ends too early leaves a quote or a bracket too many, and the rest is no JSON.
    return (rest, mask) if end and b"\\" not in mask and rest.count(_MARK) == 1 else None
