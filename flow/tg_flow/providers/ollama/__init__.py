"""Ollama's own API."""

from tg_flow.providers.ollama.provider import Ollama

__all__ = [
    "Ollama",
]
