"""What an answer is made of, and what can go wrong with it: the values that all of the provider stack shares."""

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
