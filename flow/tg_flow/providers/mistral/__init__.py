"""Mistral's own API: OpenAI's, with differences."""

from tg_flow.providers.mistral.provider import Mistral

__all__ = [
    "Mistral",
]
