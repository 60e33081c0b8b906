"""Gemini's `generateContent` on any host: the host's package creates the client, the rest is here."""

from tg_base.llm.gemini.options import GeminiOptions
from tg_base.llm.gemini.provider import Gemini, find_calls
from tg_base.llm.gemini.stream import error_detail, model_list, read_embeddings

__all__ = [
    "Gemini",
    "GeminiOptions",
    "error_detail",
    "find_calls",
    "model_list",
    "read_embeddings",
]
