"""Ollama's protocol: chats and texts as JSON lines, vectors, and what there is to ask."""

from tg_gateway.dialects.ollama.mounts import OLLAMA_MOUNTS

__all__ = ["OLLAMA_MOUNTS"]
