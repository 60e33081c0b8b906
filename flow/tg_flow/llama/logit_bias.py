"""Biases of token ids -> arrays: a mask of a whole vocabulary must not cost the engine's thread milliseconds."""

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from tg_base.runtime import Steps
from tg_flow.llama.equal_rows import MAX_DIGITS, read_equal_rows
from tg_flow.llama.library import native
from tg_schema.errors import BadRequest

MAX_BIAS: Final = 100
SLICE_CHARACTERS: Final = 64 * 1024
"""Of a packed mask, read within one turn of the event loop; about half a millisecond."""
FLOAT_BYTES: Final = 4
"""Size of one number in a mask of floats."""
_NO_PAIRS: Final = "sampling.logit_bias: the keys are token ids, and the values numbers from -100 to 100"
_ZERO: Final = np.uint8(ord("0"))
_TEN: Final = np.uint8(10)
_ROW = np.dtype([("token", np.int32), ("bias", np.float32)])
_Pairs = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class LogitBias:
    """What is added to the logits of some tokens.

    Args:
        tokens: their ids, each once.
        bias: what is added to each.
        size: tokens of the vocabulary that this is made for; None = any that has these tokens.
    """

    def __init__(self, tokens: np.ndarray[Any, Any], bias: np.ndarray[Any, Any], size: int | None = None) -> None:
        self._size = size
        self._rows = np.empty(len(tokens), dtype=_ROW)
        self._rows["token"] = tokens
        self._rows["bias"] = bias

    @classmethod
    def of(cls, bias: Mapping[int, float]) -> "LogitBias":
        """The biases of a mapping."""
        count = len(bias)
        values = np.fromiter(bias.values(), dtype=np.float32, count=count)
        return cls(np.fromiter(bias, dtype=np.int64, count=count).clip(-1, 2**31 - 1), values)

    @classmethod
    def unpack(cls, text: str) -> Steps["LogitBias"]:
        """The biases of `Sampling.packed_bias`.

        Raises:
            BadRequest: it is no such text, or has a bias out of range.
        """
        whole = text.isascii() and _is_whole(text)
        tokens, bias = (whole and (yield from read_equal_rows(text))) or (yield from _read_parts(text, whole=whole))
        _check_range(bias)
        if not (tokens[1:] > tokens[:-1]).all():
            yield
            # Of a token that comes twice the last bias counts, as in a mapping.
            places = np.sort((tokens.astype(np.int64) << 32) + np.arange(len(tokens)))
            last = places[np.append(np.diff(places >> 32) > 0, True)] & 0xFFFFFFFF
            tokens, bias = tokens[last], bias[last]
        return cls(tokens, bias)

    @classmethod
    def unpack_floats(cls, text: str) -> Steps["LogitBias"]:
        """The biases of `Sampling.packed_floats`; `check` compares their number with that of the tokens.

        Raises:
            BadRequest: this is no Base64 of 32-bit floats, or a bias is out of range.
        """
        try:
            data = msgspec.convert(text, bytes)
        except msgspec.ValidationError:
            raise BadRequest("sampling.logit_bias: this text is no Base64; send that of 32-bit floats") from None
        if not data or len(data) % FLOAT_BYTES:
            raise BadRequest(f"sampling.logit_bias: {len(data)} bytes are no 32-bit floats, one for each token")
        yield
        bias = np.frombuffer(data, dtype="<f4")
        _check_range(bias)
        yield
        some = bias != 0
        if np.count_nonzero(some) == len(bias):
            return cls(np.arange(len(bias), dtype=np.int32), bias, len(bias))
        # Most masks leave half of the vocabulary alone. At least one row stays: the functions below need one.
        tokens = np.flatnonzero(some)
        tokens = tokens if tokens.size else np.zeros(1, dtype=np.int32)
        return cls(tokens, bias[tokens], len(bias))

    def check(self, vocabulary: int) -> None:
        """Check that these are tokens of the model; a mask of floats must have them all. Raises: BadRequest."""
        if self._size not in {None, vocabulary}:
            raise BadRequest(
                f"sampling.logit_bias: the mask has {self._size} numbers, and this model {vocabulary} tokens; send one "
                "for each token"
            )
        tokens = self._rows["token"]
        if not 0 <= tokens.min() <= tokens.max() < vocabulary:
            raise BadRequest(f"sampling.logit_bias: this model's token ids are 0 to {vocabulary - 1}")

    def add_to(self, logits: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        """Change the logits of a whole vocabulary."""
        logits[self._rows["token"]] += self._rows["bias"]

    def sampler(self, vocabulary: int) -> object:
        """llama.cpp's sampler that does the same."""
        rows = (native.llama_logit_bias * len(self._rows)).from_buffer(self._rows)
        return native.llama_sampler_init_logit_bias(vocabulary, len(self._rows), rows)


def _check_range(bias: np.ndarray[Any, Any]) -> None:
    # With NaN both are NaN, which no comparison holds for.
    if not -MAX_BIAS <= bias.min() <= bias.max() <= MAX_BIAS:
        raise BadRequest("sampling.logit_bias: the values are numbers from -100 to 100")


def _is_whole(text: str) -> bool:
    """Whether no number has a point or an exponent."""
    return not any(mark in text for mark in ".eE")


def _read_parts(text: str, *, whole: bool) -> Steps[_Pairs]:
    """Ids and biases, from all parts of the text."""
    found: list[_Pairs] = []
    for part in _cut(text):
        found.append(_read_whole_numbers(part) if whole else _read_numbers(part))
        yield
    tokens, bias = zip(*found, strict=True)
    return np.concatenate(tokens), np.concatenate(bias)


def _cut(text: str) -> Iterator[str]:
    """Some pairs each."""
    start = 0
    while start <= len(text):
        comma = text.find(",", start + SLICE_CHARACTERS)
        # An id and its bias stay together: within a part, the commas are odd.
        if comma >= 0 and not text.count(",", start, comma) % 2:
            comma = text.find(",", comma + 1)
        stop = len(text) if comma < 0 else comma
        yield text[start:stop]
        start = stop + 1


def _read_whole_numbers(text: str) -> _Pairs:
    """Ids and biases."""
    count = _count_numbers(np.frombuffer(text.encode("ascii"), dtype=np.uint8))
    if not count:
        raise BadRequest(_NO_PAIRS)
    pairs = np.fromstring(text, dtype=np.int32, count=count, sep=",").reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _read_numbers(text: str) -> _Pairs:
    """The same where some are not whole numbers. Reads them as JSON: its reader is faster and stricter than NumPy's."""
    try:
        numbers = msgspec.json.decode(f"[{text}]", type=list[int | float])
        tokens, bias = numbers[::2], numbers[1::2]
        if not numbers or len(tokens) != len(bias):
            raise BadRequest(_NO_PAIRS)
        # Half the time of NumPy's own way, which would truncate an id that is no whole number.
        packed = struct.pack(f"{len(tokens)}q", *tokens), struct.pack(f"{len(bias)}f", *bias)
    except (msgspec.MsgspecError, OverflowError, struct.error):
        raise BadRequest(_NO_PAIRS) from None
    return np.frombuffer(packed[0], np.int64).clip(-1, 2**31 - 1), np.frombuffer(packed[1], np.float32)


def _count_numbers(data: _Bytes) -> int:
    """How many whole numbers these are; 0 = no pairs. What reads them stops at anything else, with a warning."""
    comma, minus, digit = data == ord(","), data == ord("-"), (data - _ZERO) < _TEN
    # `count_nonzero` is ten times as fast as `any` and `all`.
    commas, signs = int(np.count_nonzero(comma)), np.count_nonzero(minus)
    if not commas % 2 or commas + signs + np.count_nonzero(digit) < len(data) or not (digit[0] and digit[-1]):
        return 0
    if signs and np.count_nonzero((minus[1:] & ~comma[:-1]) | (minus[:-1] & ~digit[1:])):
        return 0
    return 0 if np.count_nonzero(comma[:-1] & comma[1:]) or _has_long_run(digit) else commas + 1


def _has_long_run(digit: np.ndarray[Any, np.dtype[np.bool_]]) -> bool:
    """Whether more than `MAX_DIGITS` digits stand together: each step doubles the run that is looked for."""
    run, length = digit, 1
    while length <= MAX_DIGITS and len(run):
        step = min(length, MAX_DIGITS + 1 - length)
        run, length = run[step:] & run[:-step], length + step
    return bool(np.count_nonzero(run))
