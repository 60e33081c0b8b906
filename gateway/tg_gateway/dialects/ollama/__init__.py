"""Ollama's protocol: chats and texts as JSON lines, vectors, and what there is to ask."""

from tg_gateway.dialects.ollama.dialect import MOUNTS

__all__ = ["MOUNTS"]
