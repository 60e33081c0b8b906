"""Packed mask -> ids and biases, in slices: by columns where it is written plainly, by the JSON reader where not."""

import struct
from typing import Any, Final

import msgspec
import numpy as np

from tg_base.runtime import Steps
from tg_flow.llama.number_columns import read_columns
from tg_schema.errors import BadRequest

SLICE_BYTES: Final = 128 * 1024
"""Of a packed mask, read within one turn of the event loop: half a millisecond, of which 0.07 are for any slice."""
JSON_SLICE_BYTES: Final = 64 * 1024
"""The same of what is read as JSON, which makes an object for each number."""
_NUMBERS: Final = b"0123456789,.eE+-"
_NO_PAIRS: Final = "sampling.logit_bias: the keys are token ids, and the values numbers from -100 to 100"

_Pairs = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def read_numbers(text: str) -> Steps[_Pairs]:
    """Ids and biases of "id,bias,id,bias,...", each number as it is in JSON.

    An id that 32 bits do not hold is -1 or the highest one that they hold.

    Raises:
        BadRequest: it is no such text.
    """
    if not text.isascii():
        raise BadRequest(_NO_PAIRS)
    found: list[_Pairs] = []
    start = 0
    while start <= len(text):
        # Slices of the text: a copy of all of it would cost as much as a slice's reading.
        part = text[start : start + SLICE_BYTES].encode()
        pairs = read_columns(part if start + SLICE_BYTES < len(text) else part + b",")
        if pairs is None:
            stop = _find_comma(text, start)
            found.append(_read_json(text[start:stop].encode()))
            start = stop + 1
        else:
            found.append((pairs.tokens, pairs.biases))
            start += pairs.size
        yield
    tokens, biases = zip(*found, strict=True)
    return np.concatenate(tokens), np.concatenate(biases)


def _find_comma(text: str, start: int) -> int:
    """The place behind some entries."""
    comma = text.find(",", start + JSON_SLICE_BYTES)
    # An id and its bias stay together: within a part, the commas are odd.
    if comma >= 0 and not text.count(",", start, comma) % 2:
        comma = text.find(",", comma + 1)
    return len(text) if comma < 0 else comma


def _read_json(text: bytes) -> _Pairs:
    """Ids and biases. JSON's reader is faster and stricter than NumPy's own."""
    try:
        numbers = [] if text.translate(None, _NUMBERS) else msgspec.json.decode(b"[%b]" % text, type=list[int | float])
        tokens, bias = numbers[::2], numbers[1::2]
        if not numbers or len(tokens) != len(bias):
            raise BadRequest(_NO_PAIRS)
        # Half the time of NumPy's own way, which would truncate an id that is no whole number.
        packed = struct.pack(f"{len(tokens)}q", *tokens), struct.pack(f"{len(bias)}f", *bias)
    except (msgspec.MsgspecError, OverflowError, struct.error):
        raise BadRequest(_NO_PAIRS) from None
    return np.frombuffer(packed[0], np.int64).clip(-1, 2**31 - 1), np.frombuffer(packed[1], np.float32)
