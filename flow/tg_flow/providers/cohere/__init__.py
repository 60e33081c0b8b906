"""Cohere's own API (Chat, version 2)."""

from tg_flow.providers.cohere.provider import Cohere

__all__ = [
    "Cohere",
]
