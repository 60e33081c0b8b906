"""Vectors -> OpenAI's list of embeddings, as numbers or in base64."""

import base64
import sys
from array import array
from typing import Final

from typing_extensions import override

from tg_gateway.dialects.embeddings.vector_requests import VectorRequests
from tg_gateway.dialects.embeddings.vector_writer import Vector, VectorWriter
from tg_schema import encode
from tg_schema.errors import TooLarge

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Of all embeddings of one answer."""


class EmbeddingsWriter(VectorWriter):
    """Encodes each embedding when it comes, so that the end of a long list does not take long.

    Args:
        asked: the requests that the records answer.
        model: the name that the answer says.
        in_base64: whether vectors are little-endian 32-bit floats in base64, which the SDKs ask for.
    """

    def __init__(self, asked: VectorRequests, model: str, *, in_base64: bool) -> None:
        super().__init__(asked)
        self._model = model
        self._encode = _encode_base64 if in_base64 else _encode_numbers
        self._embeddings = [b""] * asked.count
        self._size = 0

    @override
    def take(self, number: int, vector: Vector) -> None:
        embedding = b'{"object":"embedding","index":%d,"embedding":%b}' % (number, self._encode(vector))
        self._size += len(embedding)
        if self._size > MAX_ANSWER_BYTES:
            self._embeddings.clear()
            raise TooLarge(f"the embeddings have more than {MAX_ANSWER_BYTES} bytes; ask for fewer at a time")
        self._embeddings[number] = embedding

    @override
    def body(self) -> bytes:
        usage = b"" if self.usage is None else b',"usage":' + encode(self.usage)
        listed = b",".join(self._embeddings)
        return b'{"object":"list","data":[%b],"model":%b%b}' % (listed, encode(self._model), usage)


def _encode_numbers(vector: Vector) -> bytes:
    """A function, since a writer travels between processes, and `encode` is a method of what cannot be pickled."""
    return encode(vector)


def _encode_base64(vector: Vector) -> bytes:
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return b'"%b"' % base64.b64encode(numbers)
