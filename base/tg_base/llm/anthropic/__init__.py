"""Anthropic's Messages API on any host of Claude: the host's package creates the client, the rest is here."""

from tg_base.llm.anthropic.options import ClaudeOptions
from tg_base.llm.anthropic.provider import Claude, find_calls
from tg_base.llm.anthropic.stream import error_detail, model_list

__all__ = [
    "Claude",
    "ClaudeOptions",
    "error_detail",
    "find_calls",
    "model_list",
]
