"""Vectors -> OpenAI's list of embeddings, scores of pairs in vLLM's shape, or ranked documents in Jina's."""

import base64
import sys
import time
import uuid
from array import array
from collections.abc import Sequence

import msgspec
from typing_extensions import override

from tg_gateway.dialects.chat import NamedAnswer
from tg_gateway.dialects.embeddings.similarity import PairScores
from tg_gateway.dialects.embeddings.vectors import EncodedVectors, Vector, VectorUsage, VectorWriter
from tg_schema import TextCompletionRequest, encode


class Score(msgspec.Struct, frozen=True):
    """The score of one pair."""

    index: int
    object: str
    score: float


class Scores(NamedAnswer, frozen=True):
    """The answer to `/score`."""

    data: tuple[Score, ...]
    usage: VectorUsage | None = None


class RankedDocument(msgspec.Struct, frozen=True):
    """The text of a document that was ranked."""

    text: str


class Ranked(msgspec.Struct, frozen=True, omit_defaults=True):
    """A document's place in the request, and its score."""

    index: int
    relevance_score: float
    document: RankedDocument | None = None


class Ranking(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to `/rerank`: the best first."""

    id: str
    model: str
    results: tuple[Ranked, ...]
    usage: VectorUsage | None = None


class ScoreWriter(VectorWriter):
    """Scores each of the second list of texts.

    Args:
        requests: the requests that the records answer.
        model: the model's name in the answer.
        lefts: how many texts the first list has.
    """

    def __init__(self, requests: Sequence[TextCompletionRequest], model: str, lefts: int) -> None:
        super().__init__(requests)
        self._model = model
        self._pairs = PairScores(lefts, self.count - lefts)

    @override
    def take(self, number: int, vector: Vector) -> None:
        self._pairs.take(number, vector)

    @override
    def body(self) -> bytes:
        data = tuple(Score(index, "score", score) for index, score in enumerate(self._pairs.scores))
        return encode(Scores(f"score-{uuid.uuid4().hex}", "list", int(time.time()), self._model, data, self.usage))


class RerankWriter(ScoreWriter):
    """Ranks documents by their scores with one query.

    Args:
        requests: those that the records answer.
        model: the name that the answer says.
        documents: their texts.
        most: how many to report.
        with_text: whether the answer has the texts.
    """

    def __init__(
        self,
        requests: Sequence[TextCompletionRequest],
        model: str,
        documents: Sequence[str],
        most: int,
        *,
        with_text: bool,
    ) -> None:
        super().__init__(requests, model, 1)
        self._documents = documents
        self._most = most
        self._with_text = with_text

    @override
    def body(self) -> bytes:
        scores = self._pairs.scores
        # Equal scores stay in the order of the request, so that the same question has the same answer.
        best = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[: self._most]
        documents = [RankedDocument(text) if self._with_text else None for text in self._documents]
        results = tuple(Ranked(index, scores[index], documents[index]) for index in best)
        return encode(Ranking(f"rerank-{uuid.uuid4().hex}", self._model, results, self.usage))


class EmbeddingsWriter(VectorWriter):
    """Encodes each embedding when it comes.

    Args:
        requests: those that the records answer.
        model: the name that the answer says.
        in_base64: whether vectors are little-endian 32-bit floats in base64, which the SDKs ask for.
    """

    def __init__(self, requests: Sequence[TextCompletionRequest], model: str, *, in_base64: bool) -> None:
        super().__init__(requests)
        self._model = model
        self._in_base64 = in_base64
        self._embeddings = EncodedVectors(self.count)

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
