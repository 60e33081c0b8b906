"""Claude on Anthropic's own API."""

from tg_flow.providers.anthropic.provider import Anthropic

__all__ = [
    "Anthropic",
]
