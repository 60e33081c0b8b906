"""Biases of token ids -> arrays, so that a mask of a whole vocabulary costs the engine's thread no milliseconds."""

import struct
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from tg_base.runtime import Steps
from tg_schema.errors import BadRequest

SLICE_BYTES: Final = 64 * 1024
"""Bytes of a packed mask that are decoded within one turn of the event loop, which takes half a millisecond."""
MAX_BIAS: Final = 100
MAX_ID: Final = 2**21
"""Replaces all higher ids, which no vocabulary has: the largest have 10**6 tokens."""
FLOAT_BYTES: Final = 4
"""Size of one number in a mask of floats."""
_Tokens = np.ndarray[Any, Any]
_Pairs = tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.float64]]]
_NO_PAIRS: Final = "sampling.logit_bias: the keys are token ids, and the values numbers from -100 to 100"
_ROW = np.dtype([("token", np.int32), ("bias", np.float32)])


class LogitBias:
    """Numbers to add to the logits of some tokens.

    Args:
        tokens: their ids, each once.
        bias: what is added to each.
        size: the size of the vocabulary that this is made for; None = any vocabulary that has these tokens.

    Attributes:
        rows: tokens and biases in one array, in the form of `llama_logit_bias` in llama.h.
    """

    def __init__(self, tokens: np.ndarray[Any, Any], bias: np.ndarray[Any, Any], size: int | None = None) -> None:
        self._size = size
        self.rows = np.empty(len(tokens), dtype=_ROW)
        self.rows["token"] = tokens
        self.rows["bias"] = bias

    @classmethod
    def of(cls, bias: Mapping[int, float]) -> "LogitBias":
        """The biases of a mapping."""
        count = len(bias)
        values = np.fromiter(bias.values(), dtype=np.float32, count=count)
        try:
            tokens = np.fromiter(bias, dtype=np.int64, count=count).clip(-1, MAX_ID)
        except OverflowError:
            # JSON's integers have no bound.
            tokens = np.fromiter((max(-1, min(token, MAX_ID)) for token in bias), dtype=np.int64, count=count)
        return cls(tokens, values)

    @classmethod
    def unpack(cls, text: str, size: int = SLICE_BYTES) -> Steps["LogitBias"]:
        """The biases of `Sampling.packed_bias`.

        Args:
            text: the packed biases.
            size: as for `read_numbers`.

        Raises:
            BadRequest: the text is malformed, or has a bias out of range.
        """
        tokens, bias = yield from read_numbers(text, size)
        _check_range(bias)
        tokens = tokens.clip(-1, MAX_ID)
        if not (tokens[1:] > tokens[:-1]).all():
            yield
            tokens, bias = _keep_last(tokens, bias)
        return cls(tokens, bias)

    @classmethod
    def unpack_floats(cls, text: str) -> Steps["LogitBias"]:
        """The biases of `Sampling.packed_floats`. `check` compares their number with the vocabulary's size later.

        Raises:
            BadRequest: the text is not Base64 of 32-bit floats, or a bias is out of range.
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
        # Most masks change only half of the vocabulary. Keep at least one row, since `check` needs one.
        tokens = np.flatnonzero(some)
        tokens = tokens if tokens.size else np.zeros(1, dtype=np.int32)
        return cls(tokens, bias[tokens], len(bias))

    def check(self, vocabulary: int) -> None:
        """Check that the model has these tokens; a mask of floats must cover them all. Raises: BadRequest."""
        if self._size not in {None, vocabulary}:
            raise BadRequest(
                f"sampling.logit_bias: the mask has {self._size} numbers, and this model {vocabulary} tokens; send one "
                "for each token"
            )
        tokens = self.rows["token"]
        if not 0 <= tokens.min() <= tokens.max() < vocabulary:
            raise BadRequest(f"sampling.logit_bias: this model's token ids are 0 to {vocabulary - 1}")

    def add_to(self, logits: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        """Add the biases to the logits of a whole vocabulary."""
        logits[self.rows["token"]] += self.rows["bias"]


def read_numbers(text: str, size: int = SLICE_BYTES) -> Steps[_Pairs]:
    """Ids and biases of "id,bias,id,bias,...", each a JSON number. Raises BadRequest for ids of more than 64 bits.

    Args:
        text: the packed biases.
        size: bytes that are decoded in one step.

    Raises:
        BadRequest: the text is malformed.
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
    """The end of a part of about `size` bytes that has whole entries."""
    comma = text.find(",", start + size)
    # Keep an id together with its bias: a part with whole entries has an odd number of commas.
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


def _check_range(bias: np.ndarray[Any, Any]) -> None:
    # If there is a NaN, minimum and maximum are NaN, and every comparison with NaN is false.
    if not -MAX_BIAS <= bias.min() <= bias.max() <= MAX_BIAS:
        raise BadRequest("sampling.logit_bias: the values are numbers from -100 to 100")


def _keep_last(tokens: _Tokens, bias: np.ndarray[Any, Any]) -> tuple[_Tokens, np.ndarray[Any, Any]]:
    """Keep the last bias of a token that comes twice, as a mapping would."""
    # Use a table of all ids, which is much faster than sorting. If an index is assigned twice, NumPy keeps the last
    # value. The last entry of the table is for the id -1.
    entries = np.full(max(int(tokens.max()), 0) + 2, -1, dtype=np.int32)
    entries[tokens] = np.arange(len(tokens), dtype=np.int32)
    last = entries[entries >= 0]
    return tokens[last], bias[last]


def logprobs(
    row: np.ndarray[Any, np.dtype[np.float32]], token: int, alternatives: int, bias: LogitBias | None = None
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """Log-softmax of the model's own logits and `bias`, before temperature, penalties and grammar.

    Returns:
        The log-probability of `token`, and the `alternatives` likeliest tokens with theirs, best first, as plain Python
        numbers.
    """
    logits = row.astype(np.float64)
    if bias is not None:
        bias.add_to(logits)
    # Subtract the highest logit first, so that no exponential overflows.
    highest = logits.max()
    logits -= highest + np.log(np.exp(logits - highest).sum())
    if not alternatives:
        return float(logits[token]), ()
    count = min(alternatives, len(logits))
    best = np.argpartition(logits, -count)[-count:]
    best = best[np.argsort(-logits[best], kind="stable")]
    return float(logits[token]), tuple((int(number), float(logits[number])) for number in best)
