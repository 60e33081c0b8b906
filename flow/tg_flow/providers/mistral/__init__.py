"""Mistral's own API: a variant of OpenAI's."""

from tg_flow.providers.mistral.provider import Mistral

__all__ = [
    "Mistral",
]
