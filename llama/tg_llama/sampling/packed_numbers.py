"""Packed mask -> ids and biases, in slices, by the JSON reader."""

import struct
from typing import Any, Final

import msgspec
import numpy as np

from tg_base.runtime import Steps
from tg_schema.errors import BadRequest

SLICE_BYTES: Final = 64 * 1024
"""Bytes of a packed mask that are read within one turn of the event loop: half a millisecond."""
_NO_PAIRS: Final = "sampling.logit_bias: the keys are token ids, and the values numbers from -100 to 100"

_Pairs = tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.float64]]]


def read_numbers(text: str, size: int = SLICE_BYTES) -> Steps[_Pairs]:
    """Ids and biases of "id,bias,id,bias,...", each number as it is in JSON; ids of more than 64 bits are none.

    Args:
        text: to be read.
        size: bytes of it that are read in one step.

    Raises:
        BadRequest: it is no such text.
    """
    found: list[_Pairs] = []
    start = 0
    while start <= len(text):
        stop = _find_comma(text, start, size)
        found.append(_read_slice(text[start:stop]))
        start = stop + 1
        yield
    tokens, biases = zip(*found, strict=True)
    return np.concatenate(tokens), np.concatenate(biases)


def _find_comma(text: str, start: int, size: int) -> int:
    """The position after some entries."""
    comma = text.find(",", start + size)
    # An id and its bias stay together: within a part, the commas are odd.
    if comma >= 0 and not text.count(",", start, comma) % 2:
        comma = text.find(",", comma + 1)
    return len(text) if comma < 0 else comma


def _read_slice(text: str) -> _Pairs:
    """Ids and biases. JSON's reader is faster and stricter than NumPy's own."""
    try:
        numbers = msgspec.json.decode(f"[{text}]", type=list[int | float])
        tokens, bias = numbers[::2], numbers[1::2]
        if not numbers or len(tokens) != len(bias):
            raise BadRequest(_NO_PAIRS)
        # Twice as fast as NumPy's own conversion, which would also truncate fractional ids.
        packed = struct.pack(f"{len(tokens)}q", *tokens), struct.pack(f"{len(bias)}d", *bias)
    except (msgspec.MsgspecError, OverflowError, struct.error, UnicodeEncodeError):
        raise BadRequest(_NO_PAIRS) from None
    return np.frombuffer(packed[0], np.int64), np.frombuffer(packed[1], np.float64)
