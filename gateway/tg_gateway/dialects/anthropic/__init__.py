"""Anthropic's Messages API: messages, their token counts, and the list of models."""

from tg_gateway.dialects.anthropic.mounts import ANTHROPIC_MOUNTS

__all__ = ["ANTHROPIC_MOUNTS"]
