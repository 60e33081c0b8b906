"""Anthropic's Messages API: messages, their token counts, and the list of models."""

from tg_gateway.dialects.anthropic.dialect import MOUNTS

__all__ = ["MOUNTS"]
