"""Slice of a packed mask -> ids and biases, all of its numbers at once, without an object for each.

NumPy sums up neighbours, until each digit has the number of the up to four digits that end there. A longer number is a
few such parts. The JSON reader has the last word: it reads what has another form, and what could be rounded otherwise.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from tg_flow.llama.number_ends import MINUS, ZERO, NumberEnds, find_ends

MAX_FRACTION: Final = 12
"""Digits behind a point that are looked at; a number whose float could depend on the others is read again."""
MAX_READ_AGAIN: Final = 64
"""Numbers of a slice; with more of them all of it is left to the JSON reader."""
_PART: Final = 4
_MARGIN: Final = 2 * _PART
"""Bytes before the first number, where its parts are looked for."""
_TEN: Final = np.uint8(10)
_WEIGHTS: Final = np.array([10.0**-digits for digits in range(MAX_FRACTION + 1)] + [0.0] * MAX_FRACTION)
"""Of a part by its place behind the point; indices below zero are those of parts before it."""
_MAX_FLOAT: Final = float(np.finfo(np.float32).max)
_ERROR: Final = 2**-48
"""More than the relative error of ten roundings."""

_Array = np.ndarray[Any, Any]
_Places = Sequence[tuple[int, int]]


class Pairs(NamedTuple):
    """Ids and biases, and how many bytes they took."""

    tokens: _Array
    biases: _Array
    size: int


def read_columns(text: bytes) -> Pairs | None:
    """The complete entries of "id,bias,id,bias,...,"; None = the JSON reader must tell what this is."""
    exponents = _find_exponents(text)
    if exponents is None:
        return None
    chars = np.frombuffer(_hide(text, exponents), np.uint8)
    ends = find_ends(chars, _MARGIN)
    if ends is None:
        return None
    bias_start = ends.token + 1
    is_negative = chars[bias_start] == MINUS
    numbers = _read_numbers(chars, ends, is_negative)
    if numbers is None:
        return None
    tokens, low, high = numbers
    biases = np.where(is_negative, -low, low)
    again = (low != high).nonzero()[0]
    if len(again) > MAX_READ_AGAIN:
        return None
    places = zip((bias_start[again] - _MARGIN).tolist(), (ends.bias[again] - _MARGIN).tolist(), strict=True)
    size = int(ends.bias[-1]) + 1 - _MARGIN
    odd = [*places, *(place for place in exponents if place[0] < size)]
    if odd and not _read_again(biases, text, odd, ends.bias - _MARGIN):
        return None
    return Pairs(tokens, biases, size)


def _find_exponents(text: bytes) -> _Places | None:
    """Where numbers with an exponent begin and end; None = too many, or one is none."""
    found: list[tuple[int, int]] = []
    for sign in (b"e", b"E"):
        place = text.find(sign)
        while place >= 0:
            start, stop = text.rfind(b",", 0, place) + 1, text.find(b",", place)
            if stop < 0:
                break
            if len(found) == MAX_READ_AGAIN or stop - start < len(b"1e1"):
                return None
            found.append((start, stop))
            place = text.find(sign, stop)
    return found


def _hide(text: bytes, exponents: _Places) -> bytes | bytearray:
    """The text behind its margin, with a zero of the same length for each of these numbers."""
    if not exponents:
        return b"," * _MARGIN + text
    data = bytearray(b"," * _MARGIN + text)
    for start, stop in exponents:
        data[start + _MARGIN : stop + _MARGIN] = b"0.".ljust(stop - start, b"0")
    return data


def _read_numbers(chars: _Array, ends: NumberEnds, is_negative: _Array) -> tuple[_Array, _Array, _Array] | None:
    """Ids, and two floats between which each bias is, without its sign."""
    digits = chars - np.uint8(ZERO)
    is_digit = digits < _TEN
    stop = int(ends.bias[-1]) + 1
    minuses = int(np.count_nonzero(is_negative))
    # Whatever is neither a digit, nor between two numbers, nor a sign before one, is out of place.
    if int(np.count_nonzero(is_digit[_MARGIN:stop])) + minuses + ends.marks != stop - _MARGIN:
        return None
    token_start = np.empty_like(ends.bias)
    token_start[0] = _MARGIN
    np.add(ends.bias[:-1], 1, out=token_start[1:])
    lengths = ends.token - token_start
    bias_start = ends.token + 1
    bias_start += is_negative
    if not _are_whole(chars, token_start, lengths, 2 * _PART):
        return None
    if not _are_whole(chars, bias_start, ends.whole - bias_start, _PART):
        return None
    parts = _join_digits(digits, is_digit)
    tokens = parts[ends.token - 1].astype(np.int32)
    if lengths.max() > _PART:
        tokens += parts[ends.token - 1 - _PART] * (lengths > _PART) * np.int32(10**_PART)
    biases = _read_biases(parts, ends)
    return None if biases is None else (tokens, *biases)


def _are_whole(chars: _Array, start: _Array, lengths: _Array, most: int) -> bool:
    """Whether whole numbers of JSON begin here: they have digits, and no zero before others."""
    if not 1 <= lengths.min() <= lengths.max() <= most:
        return False
    return not np.count_nonzero((chars[start] == ZERO) & (lengths > 1))


def _join_digits(digits: _Array, is_digit: _Array) -> _Array:
    """At each digit, the number of the up to four digits that end there."""
    # A factor of another type would be converted in small steps.
    keep = is_digit.view(np.uint8)
    digits *= keep
    tens = digits[:-1] * _TEN
    tens *= keep[1:]
    digits[1:] += tens
    parts = digits.astype(np.uint16)
    tens = digits[:-2] * keep[1:-1]
    tens *= keep[2:]
    hundreds = tens.astype(np.uint16)
    hundreds *= np.uint16(100)
    parts[2:] += hundreds
    return parts


def _read_biases(parts: _Array, ends: NumberEnds) -> tuple[_Array, _Array] | None:
    """Two floats between which each bias is; None = a point without a digit behind it."""
    whole = parts[ends.whole - 1]
    lengths = ends.bias - ends.whole
    if not lengths.any():
        biases = whole.astype(np.float32)
        return biases, biases
    lengths -= 1
    if np.count_nonzero(lengths == 0):
        return None
    longest = int(lengths.max())
    # -1 is the length where there is no point.
    np.minimum(lengths, MAX_FRACTION, out=lengths)
    last = ends.whole + lengths
    values = whole.astype(np.float64)
    for length in range(0, min(longest, MAX_FRACTION), _PART):
        values += parts[last - length] * _WEIGHTS[lengths - length]
    high = values * (1 + _ERROR) + (_WEIGHTS[MAX_FRACTION] if longest > MAX_FRACTION else 0.0)
    return (values * (1 - _ERROR)).astype(np.float32), high.astype(np.float32)


def _read_again(biases: _Array, text: bytes, places: _Places, ends: _Array) -> bool:
    """Put what the JSON reader makes of these numbers into their entries; False = they are none, or none of a bias."""
    try:
        numbers = msgspec.json.decode(b"[%b]" % b",".join(text[start:stop] for start, stop in places), type=list[float])
    except msgspec.MsgspecError:
        return False
    if len(numbers) < len(places) or max(map(abs, numbers)) > _MAX_FLOAT:
        return False
    biases[np.searchsorted(ends, [start for start, _ in places])] = numbers
    return True
