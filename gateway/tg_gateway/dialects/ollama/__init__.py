"""Ollama's protocol: chats and texts as JSON lines, vectors, and the lists of models."""

from tg_gateway.dialects.ollama.dialect import MOUNTS

__all__ = ["MOUNTS"]
