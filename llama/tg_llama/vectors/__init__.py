"""Texts -> vectors, beside the streams of an engine."""

from tg_llama.vectors.embedder import Embedder
from tg_llama.vectors.embedding import Embedding, Vector

__all__ = ["Embedder", "Embedding", "Vector"]
