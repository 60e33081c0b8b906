"""Vectors: OpenAI's embeddings, and the scores that vLLM's and Jina's APIs make of them; the parts for other doors."""

from tg_gateway.dialects.embeddings.bodies import VectorsBody
from tg_gateway.dialects.embeddings.dialect import EMBEDDINGS, MOUNTS
from tg_gateway.dialects.embeddings.encoded_vectors import EncodedVectors
from tg_gateway.dialects.embeddings.vector_requests import MAX_INPUTS, VectorRequests, make_vector_requests
from tg_gateway.dialects.embeddings.vector_writer import Vector, VectorWriter

__all__ = [
    "EMBEDDINGS",
    "MAX_INPUTS",
    "MOUNTS",
    "EncodedVectors",
    "Vector",
    "VectorRequests",
    "VectorWriter",
    "VectorsBody",
    "make_vector_requests",
]
