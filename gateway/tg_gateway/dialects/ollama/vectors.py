"""`/api/embed` and the older `/api/embeddings`: bodies -> requests for vectors -> one body."""

import math
from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from tg_gateway.dialects import FoundModel
from tg_gateway.dialects.chat import read_inputs
from tg_gateway.dialects.embeddings import (
    MAX_INPUTS,
    EncodedVectors,
    Vector,
    VectorRequests,
    VectorsBody,
    VectorWriter,
    make_vector_requests,
)
from tg_gateway.dialects.ollama.stopwatch import Stopwatch
from tg_schema import encode

NOTHING: Final = VectorRequests((), (), 0)
"""What an empty text asks for."""


def read_embed(
    field: str,
    given: str | tuple[str, ...] | None,
    found: FoundModel,
    *,
    truncate: bool | None = None,
    dimensions: int | None = None,
) -> VectorRequests:
    """The requests for the vectors of the inputs.

    Args:
        field: the inputs' name, for errors.
        given: what it says; not empty.
        found: the model.
        truncate: whether what is too long is cut; None = where the model can.
        dimensions: numbers in each vector; None = the model's own.

    Raises:
        BadRequest: an input is empty, there are too many, or the model is a plain peer's.
    """
    cut = "truncate" in found.features if truncate is None else truncate
    asked = VectorsBody(truncate_prompt_tokens=-1 if cut else None)
    inputs = read_inputs(field, given, MAX_INPUTS)
    return make_vector_requests(asked, found, [(None, inputs)], dimensions=dimensions)


class EmbedWriter(VectorWriter):
    """All vectors, each of length 1, as Ollama has them.

    Args:
        asked: the requests that the records answer.
        model: its name, as the client said it.
        watch: runs since the request came.
        ignored: headers that list what was ignored.
    """

    def __init__(self, asked: VectorRequests, model: str, watch: Stopwatch, ignored: Mapping[str, str]) -> None:
        super().__init__(asked)
        self.headers = ignored
        self._vectors = EncodedVectors(asked.count)
        self._model = model
        self._watch = watch

    @override
    def take(self, number: int, vector: Vector) -> None:
        length = math.hypot(*vector) or 1.0
        self._vectors.add(number, encode([value / length for value in vector]))

    @override
    def body(self) -> bytes:
        count = b"" if self.usage is None else b',"prompt_eval_count":%d' % self.usage.prompt_tokens
        return b'{"model":%b,"embeddings":[%b],"total_duration":%d,"load_duration":0%b}' % (
            encode(self._model),
            self._vectors.join(),
            self._watch.read()[0],
            count,
        )


class EmbedOneWriter(VectorWriter):
    """One vector, as the model has it.

    Args:
        asked: the request that the records answer.
        ignored: headers that list what was ignored.
    """

    def __init__(self, asked: VectorRequests, ignored: Mapping[str, str]) -> None:
        super().__init__(asked)
        self.headers = ignored
        self._vector = b"[]"

    @override
    def take(self, number: int, vector: Vector) -> None:
        self._vector = encode(vector)

    @override
    def body(self) -> bytes:
        return b'{"embedding":%b}' % self._vector
