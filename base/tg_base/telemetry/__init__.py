"""Process -> operator: metrics, logs, the id of a request through every hop, and all other ids."""

from tg_base.telemetry import gen_ai, labels, span_names, trace
from tg_base.telemetry.bounded_label import MAX_LABEL_VALUES, BoundedLabel, make_printable
from tg_base.telemetry.ended_span import Attribute, EndedSpan, Spanning, end_span, find_error, record_spans
from tg_base.telemetry.histogram import Cells
from tg_base.telemetry.log import configure_log, hide_in_logs
from tg_base.telemetry.metric import Kind, Label, Metric
from tg_base.telemetry.metric_table import MetricTable
from tg_base.telemetry.metrics import (
    ACTIVE_STREAMS,
    ATTEMPTS,
    POISON,
    QUEUE_WAIT_SECONDS,
    READER_ENDS,
    REFUSALS,
    RESENDS,
    TASKS,
    USAGE_LOST,
    WARM,
    count_call,
    find_stream_counter,
    find_token_counter,
)
from tg_base.telemetry.model_loads import LOAD_REQUEST_HEADER, LOAD_RESPONSE_HEADER, MODEL_LOADS, AdapterLoad, ModelLoad
from tg_base.telemetry.span_export import export_spans
from tg_base.telemetry.trace import Span, last_number, new_id, new_number

__all__ = [
    "ACTIVE_STREAMS", "ATTEMPTS", "LOAD_REQUEST_HEADER", "LOAD_RESPONSE_HEADER", "MAX_LABEL_VALUES", "MODEL_LOADS",
    "POISON", "QUEUE_WAIT_SECONDS", "READER_ENDS", "REFUSALS", "RESENDS", "TASKS", "USAGE_LOST", "WARM", "AdapterLoad",
    "Attribute", "BoundedLabel", "Cells", "EndedSpan", "Kind", "Label", "Metric", "MetricTable", "ModelLoad", "Span",
    "Spanning", "configure_log", "count_call", "end_span", "export_spans", "find_error", "find_stream_counter",
    "find_token_counter", "gen_ai", "hide_in_logs", "labels", "last_number", "make_printable", "new_id", "new_number",
    "record_spans", "span_names", "trace",
]  # fmt: skip
