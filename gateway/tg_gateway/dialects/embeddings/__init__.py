"""Vectors: OpenAI's embeddings, and the scores that vLLM's and Jina's APIs make of them."""

from tg_gateway.dialects.embeddings.mounts import EMBEDDINGS_MOUNTS

__all__ = ["EMBEDDINGS_MOUNTS"]
