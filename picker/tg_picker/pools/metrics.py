"""All metrics of pools and pickers. The number of models' and adapters' names is bounded where requests are counted.

Names with NEW are llm-d-router's. If it published an older name, that one is exported too (`pool_boards`).
"""

from collections.abc import Mapping
from typing import Final

from tg_base.telemetry import MAX_LABEL_VALUES, Kind, Label, Metric, MetricTable

NEW: Final = "llm_d_epp_"
METRICS: Final = MetricTable()
_POOL: Final = Label("pool", "a pool")
_NAME: Final = Label("name", "a pool")
_INFERENCE_POOL: Final = Label("inference_pool", "a pool")
_ADAPTER: Final = Label("adapter", "an adapter", MAX_LABEL_VALUES)
_SERVER: Final = Label("server", "a server")
_PRIORITY: Final = Label("priority", "the request's priority")
_MODEL_NAME: Final = Label("model_name", "the model, as the client names it", MAX_LABEL_VALUES)
_MODEL: Final = (_MODEL_NAME, Label("target_model_name", "the model, as the server names it", MAX_LABEL_VALUES))
_ROUTE: Final = (Label("route", "a route"), Label("objective", "one of its objectives"))
_OUTCOME: Final = Label("outcome", "how the request's wait ended")
# Fewer buckets than the published ones: each is a line per model, under two names, in every scrape.
_LATENCIES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 300.0)
_PACES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_TOKENS = (16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0)
_PICK_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
_HIT_RATIOS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_HIT_BYTES = (0.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0)
_REQUEST_BYTES = tuple(float(64 * 4**power) for power in range(11))
_QUEUE_SECONDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def _new(kind: Kind, name: str, text: str, *labels: Label, buckets: tuple[float, ...] = ()) -> Metric:
    return METRICS.add(kind, NEW + name, text, *labels, buckets=buckets)


REQUESTS = _new("counter", "request_total", "Requests that came", *_MODEL, _PRIORITY)
ERRORS = _new(
    "counter", "request_error_total", "Requests that failed", *_MODEL, Label("error_code", "a published word")
)
MISSED = _new(
    "counter",
    "request_slo_violation_total",
    "Answers that missed an objective",
    *(*_MODEL, Label("type", "`ttft`, `tpot`")),
)
RENAMED = _new(
    "counter",
    "model_rewrite_decisions_total",
    "Requests whose model was renamed",
    *(_MODEL_NAME, Label("target_model", "its name at the server", MAX_LABEL_VALUES)),
)
RUNNING = _new("gauge", "request_running", "Requests that were placed and have not ended", _MODEL_NAME)
DISTRIBUTIONS: Final[Mapping[str, Metric]] = {
    name: _new("histogram", name, text, *_MODEL, buckets=buckets)
    for name, text, buckets in (
        ("request_ttft_seconds", "From the request to its first token", _LATENCIES),
        ("request_streaming_tpot_seconds", "From a token to the next, on average of an answer", _PACES),
        ("request_duration_seconds", "From the request to its answer's end", _LATENCIES),
        ("request_ntpot_seconds", "Duration by tokens of the answer", _PACES),
        ("request_input_tokens", "Tokens of the prompt, as the server counted them", _TOKENS),
        ("request_output_tokens", "Tokens of the answer, as the server counted them", _TOKENS),
        ("request_cached_tokens", "Tokens of the prompt that came from the server's cache", _TOKENS),
    )
}
"""Distributions of answered requests, by model."""
SIZES = _new("histogram", "request_size_bytes", "Bytes of a request's body", buckets=_REQUEST_BYTES)
PICK_SECONDS = _new("histogram", "scheduler_e2e_duration_seconds", "Time of a pick", buckets=_PICK_SECONDS)
HIT_RATIOS = _new("histogram", "prefix_indexer_hit_ratio", "Share of a prompt that a server had", buckets=_HIT_RATIOS)
HIT_BYTES = _new("histogram", "prefix_indexer_hit_bytes", "Bytes of that share, at 4 a token", buckets=_HIT_BYTES)
WAITS = _new(
    "histogram",
    "flow_control_request_queue_duration_seconds",
    "Time from the request to the decision about it",
    *(_PRIORITY, _OUTCOME, _INFERENCE_POOL),
    buckets=_QUEUE_SECONDS,
)
DECIDED = _new("counter", "flow_control_requests_total", "Requests that were placed or refused", _OUTCOME, _PRIORITY)
# No label for the model: servers times models would be too many, and clients choose models' names.
PICKS = _new(
    "counter",
    "scheduler_attempts_total",
    "Attempts to pick a server",
    *(Label("status", "`success`, `failure`"), Label("endpoint_name", "a server", MAX_LABEL_VALUES)),
    Label("port", "its port"),
)
ADAPTER_PICKS = METRICS.add(
    "counter",
    "tg_pool_adapter_picks_total",
    "Picks for an adapter, by whether its server had it loaded",
    *(_POOL, _ADAPTER, Label("result", "`loaded`, `load`")),
)
KV_EVENTS = METRICS.counter(
    "tg_pool_kv_events_total",
    "Events of model servers' KV caches, and messages that were missed",
    Label("result", "`applied`, `lost`, `repeated`, `unread`, `unplaced`"),
)
INFO = _new("gauge", "info", "The picker's build", Label("commit", "empty"), Label("build_ref", "its version"))
READY = _new("gauge", "ready_endpoints", "Servers that can be reached", _NAME)
MEAN_QUEUE = _new("gauge", "average_queue_size", "Requests that wait at a server, on average", _NAME)
MEAN_RUNNING = _new("gauge", "average_running_requests", "Requests that run at a server, on average", _NAME)
MEAN_CACHE = _new("gauge", "average_kv_cache_utilization", "Share of the KV cache in use, on average", _NAME)
SATURATION = _new("gauge", "flow_control_pool_saturation", "How full a pool is; 1 = full", _INFERENCE_POOL)
QUEUE_SIZE = _new("gauge", "flow_control_queue_size", "Requests that wait for a place", _PRIORITY, _INFERENCE_POOL)
QUEUE_BYTES = _new(
    "gauge", "flow_control_queue_bytes", "Bytes of requests that wait for a place", _PRIORITY, _INFERENCE_POOL
)
SERVER_QUEUE = _new(
    "gauge",
    "per_endpoint_queue_size",
    "Requests that wait at a server",
    *(_NAME, Label("model_server_endpoint", "a server")),
)
PREFIXES = _new("gauge", "prefix_indexer_size", "Blocks of prompts that are remembered")
PLACED = METRICS.add("gauge", "tg_pool_requests", "Requests placed at a server that have not ended", _POOL, _SERVER)
LOADED = METRICS.add("gauge", "tg_pool_adapters_loaded", "Adapters that a server probably has loaded", _POOL, _SERVER)
SLOTS = METRICS.add("gauge", "tg_pool_adapter_slots", "Adapters that fit into a server, by its report", _POOL, _SERVER)
EXACT = METRICS.add("gauge", "tg_pool_prefixes_exact", "Whether a server reports its whole cache", _POOL, _SERVER)
HOLDERS = METRICS.add(
    "gauge", "tg_pool_adapter_servers", "Servers that probably have an adapter loaded", _POOL, _ADAPTER
)
ANSWERS = METRICS.add(
    "counter",
    "tg_route_requests_total",
    "Answers of a route; with an objective, those that could be judged by it",
    *_ROUTE,
)
KEPT = METRICS.add("counter", "tg_route_requests_within_objective_total", "Answers that met the objective", *_ROUTE)
ATTAINED = METRICS.add("gauge", "tg_route_attainment_ratio", "Share that met it in the last minute", *_ROUTE)
PROMISED = METRICS.add("gauge", "tg_route_objective_share", "Share that should meet the objective", *_ROUTE)
