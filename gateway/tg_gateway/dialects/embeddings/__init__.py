"""Vectors: OpenAI's embeddings, and the scores that vLLM's and Jina's APIs make of them; the parts for other doors."""

from tg_gateway.dialects.embeddings.bodies import VectorsBody
from tg_gateway.dialects.embeddings.dialect import EMBEDDINGS, MOUNTS
from tg_gateway.dialects.embeddings.vectors import (
    MAX_INPUTS,
    EncodedVectors,
    Vector,
    VectorWriter,
    make_vector_requests,
)

__all__ = [
    "EMBEDDINGS",
    "MAX_INPUTS",
    "MOUNTS",
    "EncodedVectors",
    "Vector",
    "VectorWriter",
    "VectorsBody",
    "make_vector_requests",
]
