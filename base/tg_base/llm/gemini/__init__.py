"""Gemini's `generateContent`, wherever it is served: the host makes the client, the rest is here."""

from tg_base.llm.gemini.client import GeminiConnection, PreparedRequest
from tg_base.llm.gemini.provider import Gemini, GeminiOptions

__all__ = [
    "Gemini",
    "GeminiConnection",
    "GeminiOptions",
    "PreparedRequest",
]
