"""A mask that is large or packed -> a field of the record, without an object for each of a hundred thousand entries.

Only the form of a JSON mask, as LMQL writes it, and the size of a mask of floats are checked here. The processor checks
the numbers, where they become an array.
"""

import re
from collections.abc import Mapping, Set
from typing import Final

from tg_base.runtime import Steps
from tg_schema import decode
from tg_schema.errors import BadRequest

MIN_PACKED_BYTES: Final = 16 * 1024
"""Size from which a JSON mask is packed; a smaller one is read in less than 0.1 ms."""
SLICE_BYTES: Final = 96 * 1024
"""JSON bytes that are gone through within one turn of the event loop, about 0.1 ms. Their copies stay in the cache, and
below the size for which the allocator asks the system for new memory each time."""
FLOAT_BYTES: Final = 4
"""Size of each token's number in a mask of floats."""
_FIRST_ENTRY: Final = re.compile(rb'\{"\d+"(:\s?)-?[\d.eE+-]+(,\s?)"')
_WHOLE: Final = b"0123456789-"
_ANY: Final = _WHOLE + b".eE+"
_COMMAS: Final = bytes.maketrans(b":", b",")
_REST: Final = b'{}" \t\r\n'


def pack_mask(mask: bytes, features: Set[str]) -> Steps[Mapping[str, str]]:
    """Fields of `Sampling` that have a mask as one text.

    Args:
        mask: JSON of an object, or of the Base64 of little-endian 32-bit floats, one for each token of the vocabulary.
        features: of the model; processors of older versions read only mappings, or only whole numbers.

    Returns:
        No field for an object that is small, not in LMQL's form, or that these processors cannot read.

    Raises:
        BadRequest: the text has not the size of the Base64 of such numbers.
    """
    if mask.startswith(b'"'):
        text = _read_floats(mask)
        yield
        return {"packed_floats": text}
    if "packed_bias" not in features:
        return {}
    packed = yield from pack_bias(mask, _ANY if "packed_floats" in features else _WHOLE)
    return {} if packed is None else {"packed_bias": packed}


def _read_floats(data: bytes) -> str:
    text = decode(str, data)
    if not text.isascii() or len(text) % 4:
        raise BadRequest("logit_bias: this text is no Base64; send that of 32-bit floats, or an object")
    # Four characters are three bytes, and padding stands for those that are missing of the last three.
    size = len(text) // 4 * 3 - text.count("=", -2)
    if not size or size % FLOAT_BYTES:
        raise BadRequest(
            f"logit_bias: the Base64 of {size} bytes; send a 32-bit float of {FLOAT_BYTES} bytes for each token"
        )
    return text


def pack_bias(data: bytes, numbers: bytes = _ANY) -> Steps[str | None]:
    """`Sampling.packed_bias`; None for what is small, or not in LMQL's form.

    That form is an object of numbers with the same white space in each entry. The processor refuses malformed numbers.

    Args:
        data: JSON.
        numbers: the characters that numbers may have.
    """
    first = _FIRST_ENTRY.match(data) if len(data) >= MIN_PACKED_BYTES else None
    if first is None:
        return None
    # Without its numbers, a mask of this form is the same entry again and again.
    entry, comma = b'""' + first[1], first[2]
    period = len(entry + comma)
    entries = (entry + comma) * (SLICE_BYTES // period + 2)
    size, end = 0, len(data) - len(b"}")
    found: list[str] = []
    for start in range(len(b"{"), end, SLICE_BYTES):
        part = data[start : min(start + SLICE_BYTES, end)]
        form = part.translate(None, numbers)
        if not entries.startswith(form, size % period):
            return None
        size += len(form)
        found.append(part.translate(_COMMAS, _REST).decode("ascii"))
        yield
    is_complete = (size + len(comma)) % period == 0 and data.endswith(b"}")
    return "".join(found) if is_complete else None
