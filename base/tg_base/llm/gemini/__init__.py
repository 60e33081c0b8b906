"""Gemini's `generateContent` on any host: the host's package creates the client, the rest is here."""

from tg_base.llm.gemini.client import connect_client
from tg_base.llm.gemini.provider import Gemini, GeminiOptions
from tg_base.llm.gemini.request import GenerateRequest
from tg_base.llm.gemini.stream import error_detail, model_list, read_embeddings

__all__ = [
    "Gemini",
    "GeminiOptions",
    "GenerateRequest",
    "connect_client",
    "error_detail",
    "model_list",
    "read_embeddings",
]
