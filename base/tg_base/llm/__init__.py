"""TextCompletionRequest -> provider -> LlmChunks: what a provider's author imports, beside `tg_base.llm.http`."""

from tg_base.llm.answer_form import unfenced
from tg_base.llm.call_arguments import call_arguments
from tg_base.llm.call_numbers import CallNumbers
from tg_base.llm.chunk import LlmChunk
from tg_base.llm.credentials import chosen_key, key_from, named_key
from tg_base.llm.errors import event_error, retry_after, status_error
from tg_base.llm.keyed_connection import KeyedConnection
from tg_base.llm.object_schema import BadSchema, ObjectSchema
from tg_base.llm.remote_options import RemoteOptions, UrlOptions
from tg_base.llm.service import LlmService, ProviderOptions, joined_chunks

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
    "chosen_key",
    "event_error",
    "joined_chunks",
    "key_from",
    "named_key",
    "retry_after",
    "status_error",
    "unfenced",
]
