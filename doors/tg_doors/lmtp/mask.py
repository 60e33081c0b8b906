"""JSON of a mask -> the bias of each token, in slices, or packed: a mask of 250,000 tokens takes 30 ms to decode."""

import re
from collections.abc import Iterator, Mapping, Set
from typing import Annotated, Any, Final

import msgspec

from tg_base.runtime import Steps
from tg_schema import decode
from tg_schema.errors import BadRequest

# Masks have up to a hundred thousand whole numbers, which are encoded in a quarter of the time of floats.
Bias = Annotated[int, msgspec.Meta(ge=-100, le=100)] | Annotated[float, msgspec.Meta(ge=-100, le=100)]

SLICE_BYTES: Final = 256 * 1024
"""JSON bytes that are decoded within one turn of the event loop; about two milliseconds."""


class _Mask(msgspec.Struct, frozen=True):
    # An error names the field.
    logit_bias: dict[int, Bias]


def read_mask(mask: bytes, size: int = SLICE_BYTES) -> Steps[dict[int, Bias] | None]:
    """The bias of each token; None = there is no mask.

    Args:
        mask: JSON.
        size: about how many bytes of it are read in one step.

    Raises:
        BadRequest: this is no mask.
    """
    if mask == b"null":
        return None
    found: dict[int, Bias] = {}
    for part in cut_members(mask, size):
        found |= decode(_Mask, b'{"logit_bias":%b}' % part).logit_bias
        yield
    return found


def cut_members(mask: bytes, size: int) -> Iterator[bytes]:
    """Objects of some members each, a little larger than `size`.

    Each is valid JSON if all values of the mask are numbers: only then does every comma part two members.

    Raises:
        BadRequest: the mask is no object, or has a comma at its end.
    """
    if not (mask.startswith(b"{") and mask.endswith(b"}")):
        raise BadRequest("logit_bias must be an object of token ids and numbers")
    start, end = 1, len(mask) - 1
    while (comma := mask.find(b",", start + size, end)) >= 0:
        yield b"{%b}" % mask[start:comma]
        start = comma + 1
    if start > 1 and not mask[start:end].strip():
        raise BadRequest("logit_bias: there is a comma behind the last member")
    yield b"{%b}" % mask[start:end]


MIN_PACKED_BYTES: Final = 16 * 1024
"""JSON masks of at least this size are packed; a smaller one is read in less than 0.1 ms."""
PACKED_SLICE_BYTES: Final = 96 * 1024
"""JSON bytes that are read within one turn of the event loop, about 0.2 ms.

The slice is so small that its copies fit the CPU's cache, and stay below the size for which the allocator asks the
system for new memory.
"""
FLOAT_BYTES: Final = 4
"""Size of each token's number in a mask of floats."""
_FIRST_ENTRY: Final = re.compile(rb'\{"\d+"(:\s?)-?[\d.eE+-]+(,\s?)"')
_NUMBERS: Final = b"0123456789-.eE+"
_COMMAS: Final = bytes.maketrans(b":", b",")
_REST: Final = b'{}" \t\r\n'
_READER: Final = msgspec.json.Decoder(msgspec.Raw)


def read_fields(mask: bytes, features: Set[str]) -> Steps[Mapping[str, Any]]:
    """The field of `Sampling` that has a mask, for a model with these features.

    Raises:
        BadRequest: as for `pack_mask` and `read_mask`.
    """
    packed = yield from pack_mask(mask, features)
    return packed or {"logit_bias": (yield from read_mask(mask))}


def pack_mask(
    mask: bytes, features: Set[str], *, size: int = PACKED_SLICE_BYTES, least: int = MIN_PACKED_BYTES
) -> Steps[Mapping[str, str]]:
    """Fields of `Sampling` that have a mask as one text.

    Args:
        mask: JSON of an object, or of the Base64 of little-endian 32-bit floats, one for each token of the vocabulary.
        features: the features of the model; a processor without "packed_bias" reads only mappings, and one
            without "packed_floats" only whole numbers.
        size: bytes of an object that are read in one step.
        least: size from which an object is packed.

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
    packed = yield from pack_bias(mask, size=size, least=least)
    if packed is None or ("packed_floats" not in features and any(map(packed.__contains__, ".eE"))):
        return {}
    return {"packed_bias": packed}


def _read_floats(data: bytes) -> str:
    text = decode(str, data)
    if not text.isascii() or len(text) % 4:
        raise BadRequest("logit_bias: this text is no Base64; send that of 32-bit floats, or an object")
    # Four characters are three bytes; padding replaces missing bytes of the last three.
    size = len(text) // 4 * 3 - text.count("=", -2)
    if not size or size % FLOAT_BYTES:
        raise BadRequest(
            f"logit_bias: the Base64 of {size} bytes; send a 32-bit float of {FLOAT_BYTES} bytes for each token"
        )
    return text


def pack_bias(data: bytes, *, size: int = PACKED_SLICE_BYTES, least: int = MIN_PACKED_BYTES) -> Steps[str | None]:
    """`Sampling.packed_bias`; None if the mask is small, not in LMQL's form, or no JSON.

    LMQL's form is an object of numbers with the same white space in each entry.

    Args:
        data: JSON.
        size: as for `pack_mask`.
        least: as for `pack_mask`.
    """
    first = _FIRST_ENTRY.match(data) if len(data) >= least else None
    if first is None or not data.endswith(b"}"):
        return None
    # Without its numbers, a mask of this form is the same entry again and again.
    entry, comma = b'""' + first[1], first[2]
    forms = (entry + comma) * (size // len(entry + comma) + 2)
    found: list[str] = []
    for part in cut_members(data, size):
        # The blank of the comma before is part of all but the first.
        start = len(b"{") + (len(comma[1:]) if found else 0)
        form = part.translate(None, _NUMBERS)[start:-1] + comma
        # The form alone does not prove that the numbers are in the right places; parsing it as raw JSON does.
        if len(form) % len(entry + comma) or not forms.startswith(form) or not _is_json(part):
            return None
        found.append(part.translate(_COMMAS, _REST).decode("ascii"))
        yield
    return ",".join(found)


def _is_json(data: bytes) -> bool:
    try:
        _READER.decode(data)
    except msgspec.DecodeError:
        return False
    return True
