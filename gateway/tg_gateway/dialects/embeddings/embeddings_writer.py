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
        self._in_base64 = in_base64
        self._embeddings = EncodedVectors(asked.count)

    @override
    def take(self, number: int, vector: Vector) -> None:
        numbers = _encode_base64(vector) if self._in_base64 else encode(vector)
        self._embeddings.add(number, b'{"object":"embedding","index":%d,"embedding":%b}' % (number, numbers))

    @override
    def body(self) -> bytes:
        usage = b"" if self.usage is None else b',"usage":' + encode(self.usage)
        return b'{"object":"list","data":[%b],"model":%b%b}' % (self._embeddings.join(), encode(self._model), usage)


def _encode_base64(vector: Vector) -> bytes:
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return b'"%b"' % base64.b64encode(numbers)
