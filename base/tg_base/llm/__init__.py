"""TextCompletionRequest -> provider -> LlmChunks: all that a provider's author imports."""

# Keep several names on one line, so that the exports can be read at a glance.
# fmt: off
# isort: off
from tg_base.llm.answer_form import strip_fence
from tg_base.llm.answer_text import AnswerText
from tg_base.llm.continued_answer import find_chat_prefix
from tg_base.llm.core import (
    CallNumbers, LlmChunk, PassOn, call_arguments, event_error, find_budget, find_effort, join_chunks,
    name_server, note_unsent, read_signature, retry_after, set_fields, status_error, write_signature,
)
from tg_base.llm.credentials import Key, choose_key, find_key, key_from
from tg_base.llm.embedding_list import embedding_list
from tg_base.llm.options import Endpoint
from tg_base.llm.http import (
    ANSWERS, COUNT, EMBEDDINGS, MAX_EVENT_BYTES, MODELS, NO_FAILURES, ErrorDetail, EventDecoder, Failures, Frames,
    HttpAnswer, JsonLines, Method, PreparedConnection, RouteCall, SdkRecorder, UsageDeltas, event_chunks, open_body,
    open_pool, share_tls, unreachable,
)
from tg_base.llm.keyed_connection import KeyedConnection
from tg_base.llm.merged_streams import merge_streams
from tg_base.llm.object_schema import BadSchema, ObjectSchema, close_objects
from tg_base.llm.operations import Detokenized, Embeddings, Scores
from tg_base.llm.options import AddressOptions, ModelOptions, ProviderOptions, RemoteOptions
from tg_base.llm.sdk_provider import SdkConnection, SdkProvider, SdkWire
from tg_base.llm.service import LlmService, Preset

__all__ = [
    "ANSWERS", "COUNT", "EMBEDDINGS", "MAX_EVENT_BYTES", "MODELS", "NO_FAILURES", "AddressOptions", "AnswerText",
    "BadSchema", "CallNumbers", "Detokenized", "Embeddings", "Endpoint", "ErrorDetail", "EventDecoder", "Failures",
    "Frames", "HttpAnswer", "JsonLines", "Key", "KeyedConnection", "LlmChunk", "LlmService", "Method", "ModelOptions",
    "ObjectSchema", "PassOn", "PreparedConnection", "Preset", "ProviderOptions", "RemoteOptions", "RouteCall", "Scores",
    "SdkConnection", "SdkProvider", "SdkRecorder", "SdkWire", "UsageDeltas", "call_arguments", "choose_key",
    "close_objects", "embedding_list", "event_chunks", "event_error", "find_budget", "find_chat_prefix", "find_effort",
    "find_key", "join_chunks", "key_from", "merge_streams", "name_server", "note_unsent", "open_body", "open_pool",
    "read_signature", "retry_after", "set_fields", "share_tls", "status_error", "strip_fence", "unreachable",
    "write_signature",
]
