"""Gemini on Google AI Studio."""

from tg_flow.providers.gemini.provider import GoogleAiStudio

__all__ = [
    "GoogleAiStudio",
]
