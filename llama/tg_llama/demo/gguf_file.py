"""The packaged GGUF file -> its metadata, and its weights as 32-bit floats."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tg_llama.core import Floats

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_Q8_0 = 8
_BLOCK = np.dtype([("scale", "<f2"), ("numbers", "i1", 32)])
_ALIGNMENT = 32


class GgufFile:
    """A GGUF file whose matrices are Q8_0 and whose vectors are 32-bit floats, such as the demo model's.

    Attributes:
        values: the metadata.
        weights: each tensor by its name; a matrix has its rows in the file's order.
    """

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        self._at = 8
        tensors, values = self._number("Q"), self._number("Q")
        self.values: dict[str, Any] = {self._value(_TEXT): self._value(self._number("I")) for _ in range(values)}
        places = list(self._places(tensors))
        start = -(-self._at // _ALIGNMENT) * _ALIGNMENT
        self.weights = {name: self._weights(shape, kind, start + at) for name, shape, kind, at in places}

    def size(self, name: str) -> int:
        """The model's size of this name, for example its number of layers."""
        return int(self.values[f"llama.{name}"])

    def _number(self, form: str) -> Any:
        (number,) = struct.unpack_from(f"<{form}", self._data, self._at)
        self._at += struct.calcsize(f"<{form}")
        return number

    def _value(self, kind: int) -> Any:
        if kind == _LIST:
            inner = self._number("I")
            return [self._value(inner) for _ in range(self._number("Q"))]
        if kind != _TEXT:
            return self._number(_NUMBERS[kind])
        length = self._number("Q")
        self._at += length
        return self._data[self._at - length : self._at].decode("utf-8")

    def _places(self, tensors: int) -> Iterator[tuple[str, list[int], int, int]]:
        """Each tensor's name, shape, type, and offset after the header."""
        for _ in range(tensors):
            name = self._value(_TEXT)
            shape = [self._number("Q") for _ in range(self._number("I"))]
            yield name, shape[::-1], self._number("I"), self._number("Q")

    def _weights(self, shape: list[int], kind: int, at: int) -> Floats:
        count = int(np.prod(shape))
        if kind != _Q8_0:
            return np.frombuffer(self._data, "<f4", count, at).astype(np.float32)
        blocks = np.frombuffer(self._data, _BLOCK, count // 32, at)
        weights: Floats = (blocks["scale"].astype(np.float32)[:, None] * blocks["numbers"]).reshape(shape)
        return weights
