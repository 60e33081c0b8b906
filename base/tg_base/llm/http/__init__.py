"""Provider's HTTP answer -> chunks: connections, reading, limits, failures. Only `open_pool` imports httptools."""

# Keep several names on one line, so that the exports can be read at a glance.
# fmt: off
# isort: off
from tg_base.llm.http.answer import HttpAnswer
from tg_base.llm.http.failures import NO_FAILURES, Failures, unreachable
from tg_base.llm.http.json_lines import JsonLines
from tg_base.llm.http.open_pool import open_pool, share_tls
from tg_base.llm.http.prepared_connection import (
    ANSWERS, COUNT, EMBEDDINGS, MODELS, PreparedConnection, RouteCall, SdkRecorder,
)
from tg_base.llm.http.response import (
    ErrorDetail, Method, begin_body, no_detail, open_body, read_whole_body,
)
from tg_base.llm.http.stream_reader import (
    MAX_EVENT_BYTES, UNREADABLE, USAGE_TIMEOUT_SECONDS, EventDecoder, Frames, Read, Take, event_chunks,
)
from tg_base.llm.http.usage_deltas import UsageDeltas

__all__ = [
    "ANSWERS", "COUNT", "EMBEDDINGS", "MAX_EVENT_BYTES", "MODELS", "NO_FAILURES", "UNREADABLE", "USAGE_TIMEOUT_SECONDS",
    "ErrorDetail", "EventDecoder", "Failures", "Frames", "HttpAnswer", "JsonLines", "Method", "PreparedConnection",
    "Read", "RouteCall", "SdkRecorder", "Take", "UsageDeltas", "begin_body", "event_chunks", "no_detail", "open_body",
    "open_pool", "read_whole_body", "share_tls", "unreachable",
]
