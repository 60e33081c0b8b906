"""TextCompletionRequest -> provider -> LlmChunks: what a provider's author imports, beside `tg_base.llm.http`."""

from tg_base.llm.answer_form import strip_fence
from tg_base.llm.call_arguments import call_arguments
from tg_base.llm.call_numbers import CallNumbers
from tg_base.llm.chunk import LlmChunk
from tg_base.llm.credentials import choose_key, find_key, key_from
from tg_base.llm.errors import event_error, retry_after, status_error
from tg_base.llm.keyed_connection import KeyedConnection
from tg_base.llm.object_schema import BadSchema, ObjectSchema
from tg_base.llm.remote_options import RemoteOptions, UrlOptions
from tg_base.llm.service import LlmService, ProviderOptions, join_chunks

__all__ = [
    "BadSchema",
    "CallNumbers",
    "KeyedConnection",
    "LlmChunk",
    "LlmService",
    "ObjectSchema",
    "ProviderOptions",
    "RemoteOptions",
    "UrlOptions",
    "call_arguments",
    "choose_key",
    "event_error",
    "find_key",
    "join_chunks",
    "key_from",
    "retry_after",
    "status_error",
    "strip_fence",
]
