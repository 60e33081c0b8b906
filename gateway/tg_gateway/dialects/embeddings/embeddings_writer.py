"""Vectors -> OpenAI's list of embeddings, as numbers or in base64."""

import base64
import sys
from array import array

from typing_extensions import override

from tg_gateway.dialects.embeddings.vectors import EncodedVectors, Vector, VectorRequests, VectorWriter
from tg_schema import encode


class EmbeddingsWriter(VectorWriter):
    """Encodes each embedding when it comes.

    Args:
        asked: the requests that the records answer.
        model: the name that the answer says.
        in_base64: whether vectors are little-endian 32-bit floats in base64, which the SDKs ask for.
    """

    def __init__(self, asked: VectorRequests, model: str, *, in_base64: bool) -> None:
        super().__init__(asked)
        self._model = model
        self._encode = _encode_base64 if in_base64 else _encode_numbers
        self._embeddings = EncodedVectors(asked.count)

    @override
    def take(self, number: int, vector: Vector) -> None:
        embedding = b'{"object":"embedding","index":%d,"embedding":%b}' % (number, self._encode(vector))
        self._embeddings.add(number, embedding)

    @override
    def body(self) -> bytes:
        usage = b"" if self.usage is None else b',"usage":' + encode(self.usage)
        return b'{"object":"list","data":[%b],"model":%b%b}' % (self._embeddings.join(), encode(self._model), usage)


def _encode_numbers(vector: Vector) -> bytes:
    """A function, since writers are pickled, and `encode` is a method of an object that cannot be pickled."""
    return encode(vector)


def _encode_base64(vector: Vector) -> bytes:
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return b'"%b"' % base64.b64encode(numbers)
