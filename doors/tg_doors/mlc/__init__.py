"""MLC-LLM's REST API: OpenAI's API, with conventions of its own."""

from tg_doors.mlc.dialect import MOUNTS

__all__ = ["MOUNTS"]
