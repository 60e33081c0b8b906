"""Packed mask of any numbers -> ids and biases, in slices, by the JSON reader."""

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


MAX_RUNS: Final = 24
"""The most runs of entries with equal lengths; a mask with more is read entry by entry."""
MAX_DIGITS: Final = 9
"""The most digits of a number in a packed mask; more would not fit into 32 bits."""
_FIRST_ROWS: Final = 128
_MAX_ROWS: Final = 32 * 1024
_GROWTH: Final = 4
_COMMA, _MINUS, _ZERO = b",-0"

_Numbers = np.ndarray[Any, np.dtype[np.int32]]
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def read_equal_rows(text: str) -> Steps[tuple[_Numbers, _Numbers] | None]:
    """Ids and biases of "id,bias,id,bias,..."; None for what has another form, or too many lengths of entries."""
    data = text.encode() + b","
    found: list[tuple[_Numbers, _Numbers]] = []
    start, most = 0, _FIRST_ROWS
    while start < len(data):
        comma = data.find(b",", start)
        width = data.find(b",", comma + 1) + 1 - start
        if len(found) == MAX_RUNS or width <= 0:
            return None
        count = min(most, (len(data) - start) // width)
        rows = np.frombuffer(data, np.uint8, count * width, start).reshape(count, width)
        pairs = _read_rows(rows, comma - start)
        if pairs is None:
            return None
        found.append(pairs)
        alike = len(pairs[0])
        start += alike * width
        # The next run may be short, so do not search all the rest.
        most = min(most * _GROWTH, _MAX_ROWS) if alike == count else _FIRST_ROWS
        yield
    tokens, biases = zip(*found, strict=True)
    return np.concatenate(tokens), np.concatenate(biases)


def _read_rows(rows: _Bytes, comma: int) -> tuple[_Numbers, _Numbers] | None:
    """Ids and biases of the first rows, up to one that is another entry in its form; None = the first one is none."""
    sign = int(rows[0, comma + 1] == _MINUS)
    first, width = comma + 1 + sign, rows.shape[1]
    if not 0 < comma <= MAX_DIGITS or not 0 < width - 1 - first <= MAX_DIGITS:
        return None
    lowest = np.full((width, 1), _ZERO, np.uint8)
    lowest[[comma, width - 1]] = _COMMA
    if sign:
        lowest[comma + 1] = _MINUS
    # Work by columns: NumPy handles few long lines ten times as fast as many short ones.
    digits = np.ascontiguousarray(rows.T) - lowest
    fits = digits <= np.where(lowest == _ZERO, np.uint8(9), np.uint8(0))
    if np.count_nonzero(fits) < fits.size:
        digits = digits[:, : int(fits.all(axis=0).argmin())]
        if not digits.size:
            return None
    numbers = digits[:comma], digits[first:-1]
    if any(len(columns) > 1 and np.count_nonzero(columns[0]) < digits.shape[1] for columns in numbers):
        # JSON has no zero before another digit.
        return None
    token, bias = map(_join_digits, numbers)
    return token, -bias if sign else bias


def _join_digits(columns: _Bytes) -> _Numbers:
    """The number of each row."""
    number: _Numbers = columns[0].astype(np.int32)
    for column in columns[1:]:
        number *= 10
        number += column
    return number
