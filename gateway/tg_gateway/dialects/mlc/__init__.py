"""MLC-LLM's REST API: OpenAI's, with conventions of its own."""

from tg_gateway.dialects.mlc.dialect import MOUNTS

__all__ = ["MOUNTS"]
