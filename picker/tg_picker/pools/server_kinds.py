"""The names of load metrics for each kind of model server. A new kind is one row."""

from collections.abc import Mapping

from msgspec import Struct


class Metric(Struct, frozen=True):
    """One metric of a page.

    Attributes:
        name: its name on the page.
        labels: a series counts only if it has these labels with these values.
        absent: a series counts only if each of these labels is missing or has this value, because servers also print
            parts of the total, for instance one series for each priority.
        ranks: labels that number the processes of an engine. Each process repeats the engine's values, so only the
            series with the lowest numbers counts.
        engine: the label that distinguishes engines; "" = there is only one.
        value: the label that holds the value, a whole number; "" = the sample is the value.
    """

    name: str
    labels: Mapping[str, str] = {}
    absent: Mapping[str, str] = {}
    ranks: tuple[str, ...] = ()
    engine: str = ""
    value: str = ""


class ServerKind(Struct, frozen=True):
    """The metrics of one kind of server. If a field has several names, the first one on the page counts.

    Attributes:
        queued: requests that wait. Series are summed: vLLM has one for each data-parallel engine.
        running: requests in the batch; series are summed.
        kv_usage: the share of the KV cache in use; the mean of the series counts.
        block_tokens: the tokens of a block; if several models or engines report it, the first one counts.
        blocks: the number of blocks; series are summed.
        lora_info: vLLM's series for each state, of which the newest counts: its value is a time.
        lora_loaded: one series for each loaded adapter, with its level.
        lora_requests: the requests that wait, by adapter.
        lora_slots: the adapters that a batch may use concurrently.
        path: the path of the page.
    """

    queued: tuple[Metric, ...] = ()
    running: tuple[Metric, ...] = ()
    kv_usage: tuple[Metric, ...] = ()
    block_tokens: tuple[Metric, ...] = ()
    blocks: tuple[Metric, ...] = ()
    lora_info: Metric | None = None
    lora_loaded: Metric | None = None
    lora_requests: Metric | None = None
    lora_slots: tuple[Metric, ...] = ()
    path: str = "/metrics"


def _sglang(name: str, value: str = "") -> Metric:
    # With data-parallel attention, the lowest tensor rank of an engine is 0 only in the first engine.
    return Metric(f"sglang:{name}", {}, {"priority": ""}, ("pp_rank", "tp_rank"), "dp_rank", value)


_TRT_REQUESTS, _TRT_BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"

SERVER_KINDS: Mapping[str, ServerKind] = {
    "vllm": ServerKind(
        queued=(Metric("vllm:num_requests_waiting"),),
        running=(Metric("vllm:num_requests_running"),),
        kv_usage=(Metric("vllm:kv_cache_usage_perc"), Metric("vllm:gpu_cache_usage_perc")),
        block_tokens=(Metric("vllm:cache_config_info", value="block_size"),),
        blocks=(Metric("vllm:cache_config_info", value="num_gpu_blocks"),),
        lora_info=Metric("vllm:lora_requests_info"),
        lora_loaded=Metric("vllm:lora_adapter_loaded"),
        # Our own model server has this metric in addition to vLLM's.
        lora_requests=Metric("tg_adapter_requests", {"state": "waiting"}),
        lora_slots=(Metric("vllm:max_gpu_lora_adapters"),),
    ),
    "sglang": ServerKind(
        queued=(_sglang("num_queue_reqs"),),
        running=(_sglang("num_running_reqs"),),
        kv_usage=(_sglang("token_usage"),),
        block_tokens=(_sglang("cache_config_info", "page_size"),),
        blocks=(_sglang("cache_config_info", "num_pages"),),
    ),
    "triton": ServerKind(
        queued=(Metric(_TRT_REQUESTS, {"request_type": "waiting"}),),
        running=(Metric(_TRT_REQUESTS, {"request_type": "scheduled"}),),
        kv_usage=(Metric(_TRT_BLOCKS, {"kv_cache_block_type": "fraction"}),),
        block_tokens=(Metric(_TRT_BLOCKS, {"kv_cache_block_type": "tokens_per"}),),
        blocks=(Metric(_TRT_BLOCKS, {"kv_cache_block_type": "max"}),),
    ),
    "trtllm-serve": ServerKind(
        queued=(Metric("trtllm_num_requests_waiting"),),
        running=(Metric("trtllm_num_requests_running"),),
        kv_usage=(Metric("trtllm_kv_cache_utilization"),),
        block_tokens=(Metric("trtllm_kv_cache_tokens_per_block"),),
        blocks=(Metric("trtllm_kv_cache_max_blocks"),),
        # Its /metrics is JSON about steps, and reading it removes what was read.
        path="/prometheus/metrics",
    ),
    "llama.cpp": ServerKind(
        queued=(Metric("llamacpp:requests_deferred"),),
        running=(Metric("llamacpp:requests_processing"),),
        kv_usage=(Metric("llamacpp:kv_cache_usage_ratio"),),
    ),
    "tokengrid": ServerKind(
        running=(Metric("tg_active_streams", {"service": "text-completion"}),),
    ),
}
"""Name in a configuration -> the kind of server. `tokengrid` stands for the page of our own processors."""
