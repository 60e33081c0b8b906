"""Chunks, tool calls and errors: the values that the whole provider stack shares."""

from tg_base.llm.core.body_fields import call_arguments, set_fields
from tg_base.llm.core.call_meter import CALL, CallMeter, name_server, note_joined, note_unsent
from tg_base.llm.core.call_numbers import CallNumbers
from tg_base.llm.core.chunk import LlmChunk, PassOn, join_chunks
from tg_base.llm.core.effort import find_budget, find_effort
from tg_base.llm.core.errors import event_error, find_code, find_request_id, retry_after, status_error
from tg_base.llm.core.signature import read_signature, write_signature

__all__ = [
    "CALL",
    "CallMeter",
    "CallNumbers",
    "LlmChunk",
    "PassOn",
    "call_arguments",
    "event_error",
    "find_budget",
    "find_code",
    "find_effort",
    "find_request_id",
    "join_chunks",
    "name_server",
    "note_joined",
    "note_unsent",
    "read_signature",
    "retry_after",
    "set_fields",
    "status_error",
    "write_signature",
]
