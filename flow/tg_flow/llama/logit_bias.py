"""Biases of token ids -> arrays: a mask of a whole vocabulary must not cost the engine's thread milliseconds."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tg_flow.llama.library import native
from tg_schema.errors import BadRequest

MAX_BIAS: Final = 100
MAX_DIGITS: Final = 9
"""Of a number of a packed mask; more would not fit into 32 bits."""
_ZERO: Final = np.uint8(ord("0"))
_TEN: Final = np.uint8(10)
_ROW = np.dtype([("token", np.int32), ("bias", np.float32)])
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class LogitBias:
    """What is added to the logits of some tokens.

    Args:
        tokens: their ids, each once.
        bias: what is added to each.
    """

    def __init__(self, tokens: np.ndarray[Any, Any], bias: np.ndarray[Any, Any]) -> None:
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
    def unpack(cls, text: str) -> "LogitBias":
        """The biases of `Sampling.packed_bias`.

        Raises:
            BadRequest: it is no such text, or has a bias out of range.
        """
        data = np.frombuffer(text.encode("ascii", "replace"), dtype=np.uint8)
        count = _count_numbers(data)
        if not count:
            raise BadRequest("sampling.logit_bias: the keys are token ids, and the values numbers from -100 to 100")
        pairs = np.fromstring(text, dtype=np.int32, count=count, sep=",").reshape(-1, 2)
        tokens, bias = pairs[:, 0], pairs[:, 1]
        if np.abs(bias).max() > MAX_BIAS:
            raise BadRequest("sampling.logit_bias: the values are numbers from -100 to 100")
        if (np.diff(tokens) <= 0).any():
            # A token that comes twice counts once, as in a mapping.
            return cls.of(dict(zip(tokens.tolist(), bias.tolist(), strict=True)))
        return cls(tokens, bias)

    def check(self, vocabulary: int) -> None:
        """Check that these are tokens of the model. Raises: BadRequest."""
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
