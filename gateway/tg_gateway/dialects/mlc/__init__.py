"""MLC-LLM's REST API: OpenAI's, with conventions of its own."""

from tg_gateway.dialects.mlc.mounts import MLC_MOUNTS

__all__ = ["MLC_MOUNTS"]
