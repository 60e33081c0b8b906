"""Vectors and scores -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal

import msgspec

from tg_gateway.dialects import ASKING, Description
from tg_gateway.dialects.chat import Failure
from tg_gateway.dialects.embeddings.bodies import EmbeddingsBody, RerankBody, ScoreBody
from tg_gateway.dialects.embeddings.score_writers import Ranking, Scores
from tg_gateway.dialects.embeddings.vector_writer import VectorUsage

_describe = partial(Description, group="Vectors and scores", failure=Failure, raises=ASKING)
_DOCUMENTS: Final[Any] = ("Cats purr.", "Brokers carry messages.")


class Embedding(msgspec.Struct, frozen=True):
    """The vector of one input: numbers, or little-endian 32-bit floats in base64."""

    index: int
    embedding: tuple[float, ...] | str
    object: Literal["embedding"]


class Embeddings(msgspec.Struct, frozen=True):
    """The answer to `/v1/embeddings`, as `embeddings_writer.py` writes it piece by piece."""

    object: Literal["list"]
    data: tuple[Embedding, ...]
    model: str
    usage: VectorUsage | msgspec.UnsetType = msgspec.UNSET


EMBEDDINGS_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "embed": _describe(
        summary="Make vectors of texts",
        body=EmbeddingsBody,
        required=("model", "input"),
        answer=Embeddings,
        examples={
            "numbers": {"model": "tinydemo", "input": ["One", "Two"]},
            "base64": {"model": "tinydemo", "input": "One", "encoding_format": "base64"},
        },
    ),
    "score": _describe(
        summary="Score pairs of texts",
        body=ScoreBody,
        required=("text_1", "text_2"),
        answer=Scores,
        examples={"pairs": {"text_1": "What is a broker?", "text_2": _DOCUMENTS}},
    ),
    "rerank": _describe(
        summary="Rank documents by a query",
        body=RerankBody,
        required=("query", "documents"),
        answer=Ranking,
        examples={"documents": {"query": "What is a broker?", "documents": _DOCUMENTS, "top_n": 1}},
    ),
}
