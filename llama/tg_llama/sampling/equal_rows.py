"""Packed mask of whole numbers -> ids and biases, many entries at once where neighbours are equally long.

They nearly always are: the ids of a mask ascend, and most biases of one are the same.
"""

from typing import Any, Final

import numpy as np

from tg_base.runtime import Steps

MAX_RUNS: Final = 24
"""Entries of other masks change their length all the time, and are read one by one."""
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
        # The next run may be short, and is not worth a look at all that follows.
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
    # By columns: NumPy passes over few long lines in a tenth of the time that many short ones take.
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
