"""Chunks, tool calls and errors: the values that the whole provider stack shares."""

from tg_base.llm.core.call_arguments import call_arguments
from tg_base.llm.core.call_numbers import CallNumbers
from tg_base.llm.core.chunk import LlmChunk, join_chunks
from tg_base.llm.core.errors import event_error, retry_after, status_error

__all__ = [
    "CallNumbers",
    "LlmChunk",
    "call_arguments",
    "event_error",
    "join_chunks",
    "retry_after",
    "status_error",
]
