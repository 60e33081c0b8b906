"""All metrics of the transport and their names; one registry for each process, served at `/metrics`."""

from typing import Final

from tg_base.telemetry.gen_ai import CLIENT_TOKENS, OPERATIONS, TOKEN_BUCKETS, TOKEN_TYPE, rename
from tg_base.telemetry.labels import DIRECTION, EVENT, FLOW, KEY, MODEL, OUTCOME, SECONDS, SERVICE
from tg_base.telemetry.metric import Label, Metric
from tg_base.telemetry.metric_table import MetricTable
from tg_schema.usage_record import UsageRecord

METRICS: Final = MetricTable()

QUEUE_WAIT_SECONDS = METRICS.histogram(
    "tg_queue_wait_seconds", "Request published to work begun", SERVICE, MODEL, FLOW, buckets=SECONDS
)
find_token_counter = METRICS.finder("tg_tokens_total", "Tokens counted by the provider", MODEL, DIRECTION)
_USED_TOKENS = METRICS.histogram(
    CLIENT_TOKENS,
    "Tokens of a call of a provider, as it counted them",
    *(TOKEN_TYPE, *rename((SERVICE, MODEL))),
    buckets=TOKEN_BUCKETS,
)
find_provider_counter = METRICS.finder(
    "tg_provider_calls_total",
    "Calls of a provider",
    *(MODEL, OUTCOME, Label("status", "`4xx` or `5xx` of a refusal")),
)
find_key_tokens = METRICS.finder("tg_key_tokens_total", "Tokens of a key's calls, estimates included", KEY, DIRECTION)
USAGE_LOST = METRICS.counter(
    "tg_usage_lost_total", "Records of usage that the bus did not take and no room was left for"
)
ACTIVE_STREAMS = METRICS.gauge("tg_active_streams", "Requests worked on now", SERVICE)
find_stream_counter = METRICS.finder("tg_streams_total", "Requests ended at a processor", SERVICE, OUTCOME)
ATTEMPTS = METRICS.counter("tg_attempts_total", "Further attempts at a request whose processor died", SERVICE)
RESENDS = METRICS.counter("tg_resends_total", "Gaps in a link that were asked for again")
POISON = METRICS.counter(
    "tg_poison_messages_total",
    "Messages that nobody can read or is to have",
    Label("topic", "a topic that this process reads"),
)
SPANS = METRICS.counter("tg_spans_total", "Spans", Label("outcome", "`exported`, `failed`, `dropped`"))
READER_ENDS = METRICS.counter("tg_reader_ends_total", "Subscriptions that ended by themselves, to be opened again")
REFUSALS = METRICS.counter("tg_refusals_total", "Requests refused unasked", SERVICE, Label("reason", "why"))
WARM = METRICS.counter("tg_warm_requests_total", "Requests sent past the queue by their cache key", SERVICE, EVENT)
TASKS = METRICS.gauge("tg_tasks", "Tasks on the event loop now")


def _add_model_gauge(name: str, text: str, *labels: Label) -> Metric:
    return METRICS.add("gauge", name, text, Label("model_name", "a model that is open here"), *labels)


_ADAPTER_NAME: Final = Label("adapter_name", "an adapter that is in memory or asked for")
VLLM_RUNNING = _add_model_gauge("vllm:num_requests_running", "Requests in the batch")
VLLM_WAITING = _add_model_gauge("vllm:num_requests_waiting", "Requests that wait")
# Pickers before 2026 know the second name alone.
VLLM_CACHE = [
    _add_model_gauge(f"vllm:{name}", "Share of the KV cache in use")
    for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc")
]
VLLM_CACHE_CONFIG = _add_model_gauge(
    "vllm:cache_config_info", "The KV cache", Label("block_size", "tokens"), Label("num_gpu_blocks", "blocks")
)
_NAMES: Final = "names of adapters"
VLLM_LORA_INFO = _add_model_gauge(
    "vllm:lora_requests_info",
    "Adapters with requests; a time",
    Label("max_lora", "adapters"),
    *(Label("running_lora_adapters", _NAMES), Label("waiting_lora_adapters", _NAMES)),
)
VLLM_LORA_LOADED = _add_model_gauge(
    "vllm:lora_adapter_loaded", "Adapters in memory", _ADAPTER_NAME, Label("level", "`gpu`"), Label("pinned", "`false`")
)
VLLM_LORA_MOST = _add_model_gauge("vllm:max_gpu_lora_adapters", "Adapters in memory at most")
VLLM_LORA_NUMBER = _add_model_gauge("vllm:num_gpu_loaded_lora_adapters", "Adapters in memory")
ADAPTER_REQUESTS = _add_model_gauge(
    "tg_adapter_requests", "Requests of an adapter", _ADAPTER_NAME, Label("state", "`running`, `waiting`")
)


def count_call(record: UsageRecord) -> None:
    """Count a call of a provider."""
    outcome = record.error or ("ok" if record.outcome == "complete" else record.outcome)
    status = f"{record.upstream_status // 100}xx" if record.upstream_status else ""
    find_provider_counter(record.model, outcome, status).inc()
    operation, key = OPERATIONS.get(record.operation, record.operation), record.payer.key
    for direction, kind, count in (("in", "input", record.usage.in_token), ("out", "output", record.usage.out_token)):
        if count is not None and not record.estimated:
            _USED_TOKENS.labels(kind, operation, record.provider, record.model).observe(count)
        if count is not None and key is not None:
            find_key_tokens(key, direction).inc(count)
