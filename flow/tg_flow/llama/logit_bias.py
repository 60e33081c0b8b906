"""Biases of token ids -> arrays: a mask of a whole vocabulary must not cost the engine's thread milliseconds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tg_flow.llama.library import native

_ROW = np.dtype([("token", np.int32), ("bias", np.float32)])


class LogitBias:
    """What is added to the logits of some tokens."""

    def __init__(self, bias: Mapping[int, float]) -> None:
        self._rows = np.empty(len(bias), dtype=_ROW)
        self._rows["token"] = np.fromiter(bias, dtype=np.int32, count=len(bias))
        self._rows["bias"] = np.fromiter(bias.values(), dtype=np.float32, count=len(bias))

    def add_to(self, logits: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        """Change the logits of a whole vocabulary."""
        logits[self._rows["token"]] += self._rows["bias"]

    def sampler(self, vocabulary: int) -> object:
        """llama.cpp's sampler that does the same."""
        rows = (native.llama_logit_bias * len(self._rows)).from_buffer(self._rows)
        return native.llama_sampler_init_logit_bias(vocabulary, len(self._rows), rows)
