"""Process -> operator: metrics, logs, the id of a request through every hop, and all other ids."""

from tg_base.telemetry import span_names, trace
from tg_base.telemetry.ended_span import Attribute, EndedSpan, Spanning, end_span, find_error, record_spans
from tg_base.telemetry.histogram import Cells
from tg_base.telemetry.log import configure_log, hide_in_logs
from tg_base.telemetry.metrics import (
    ACTIVE_STREAMS,
    ATTEMPTS,
    BAND,
    BAND_MADE,
    CHUNK_GAP_SECONDS,
    FIRST_TOKEN_SECONDS,
    OVERHEAD_SECONDS,
    POISON,
    QUEUE_WAIT_SECONDS,
    READER_ENDS,
    REFUSALS,
    RESENDS,
    STREAMS,
    TASKS,
    USAGE_LOST,
    WARM,
    find_stream_counter,
    find_token_counter,
)
from tg_base.telemetry.model_loads import LOAD_REQUEST_HEADER, LOAD_RESPONSE_HEADER, MODEL_LOADS, AdapterLoad, ModelLoad
from tg_base.telemetry.span_export import export_spans
from tg_base.telemetry.trace import Span, last_number, new_id, new_number

__all__ = [
    "ACTIVE_STREAMS", "ATTEMPTS", "BAND", "BAND_MADE", "CHUNK_GAP_SECONDS", "FIRST_TOKEN_SECONDS",
    "LOAD_REQUEST_HEADER", "LOAD_RESPONSE_HEADER", "MODEL_LOADS", "OVERHEAD_SECONDS", "POISON", "QUEUE_WAIT_SECONDS",
    "READER_ENDS", "REFUSALS", "RESENDS", "STREAMS", "TASKS", "USAGE_LOST", "WARM", "AdapterLoad", "Attribute", "Cells",
    "EndedSpan", "ModelLoad", "Span", "Spanning", "configure_log", "end_span", "export_spans", "find_error",
    "find_stream_counter", "find_token_counter", "hide_in_logs", "last_number", "new_id", "new_number", "record_spans",
    "span_names", "trace",
]  # fmt: skip
