"""Load -> the page of metrics that vLLM, SGLang and Triton print for it, line by line as the real ones do."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_SECONDS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0)
_VLLM_HISTOGRAMS = {
    "time_to_first_token_seconds": _SECONDS,
    "inter_token_latency_seconds": _SECONDS,
    "request_time_per_output_token_seconds": _SECONDS,
    "e2e_request_latency_seconds": _SECONDS,
    "request_queue_time_seconds": _SECONDS,
    "request_inference_time_seconds": _SECONDS,
    "request_prefill_time_seconds": _SECONDS,
    "request_decode_time_seconds": _SECONDS,
    "request_prompt_tokens": _TOKENS,
    "request_generation_tokens": _TOKENS,
    "request_max_num_generation_tokens": _TOKENS,
    "request_params_max_tokens": _TOKENS,
    "request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
    "iteration_tokens_total": (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0),
    "request_prefill_kv_computed_tokens": _TOKENS,
    "kv_block_lifetime_seconds": _SECONDS,
    "kv_block_idle_before_evict_seconds": _SECONDS,
    "kv_block_reuse_gap_seconds": _SECONDS,
    "kv_transfer_seconds": _SECONDS,
}
_VLLM_COUNTERS = ("prompt_tokens", "generation_tokens", "num_preemptions", "prefix_cache_queries", "prefix_cache_hits")
_PYTHON = """# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 11242.0
python_gc_objects_collected_total{generation="1"} 1431.0
# HELP python_info Python platform information
# TYPE python_info gauge
python_info{implementation="CPython",major="3",minor="12",patchlevel="11",version="3.12.11"} 1.0
# HELP process_resident_memory_bytes Resident memory size in bytes.
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 1.047126016e+09
"""


@dataclass
class Load:
    """What a server is asked to say. With `resident` None it tells activity alone, as vLLM did before that metric."""

    queued: float = 0.0
    running: float = 0.0
    kv_usage: float = 0.0
    slots: int = 0
    active: tuple[str, ...] = ()
    resident: dict[str, str] | None = None
    engines: int = 1
    before: list[tuple[str, ...]] = field(default_factory=list)
    """The sets of adapters that ran earlier; vLLM goes on printing a series for each."""


def vllm_page(load: Load, *, old: bool = False) -> bytes:
    """vLLM's page, about 500 lines; `old` with the name of the KV metric before version 0.10."""
    return "\n".join((*_vllm_lines(load, old), "")).encode()


def _vllm_lines(load: Load, old: bool) -> Iterator[str]:
    yield from _PYTHON.splitlines()
    engines = [f'engine="{number}",model_name="{MODEL}"' for number in range(load.engines)]
    share = "gpu_cache_usage_perc" if old else "kv_cache_usage_perc"
    yield from _gauge("vllm:num_requests_running", "Number of requests in execution.", engines, load.running)
    yield from _gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", engines, load.queued)
    yield from _gauge(f"vllm:{share}", "KV-cache usage. 1 means 100 percent usage.", engines, load.kv_usage)
    cache = (
        'block_size="16",cache_dtype="auto",cpu_offload_gb="0",enable_prefix_caching="True",engine="{0}",'
        'gpu_memory_utilization="0.9",num_cpu_blocks="None",num_gpu_blocks="11560",num_gpu_blocks_override="None",'
        'prefix_caching_hash_algo="sha256",sliding_window="None",swap_space="4"'
    )
    infos = [cache.format(number) for number in range(load.engines)]
    yield from _gauge("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", infos, 1.0)
    yield from _lora_lines(load)
    for name in _VLLM_COUNTERS:
        yield f"# HELP vllm:{name}_total Number of {name.replace('_', ' ')}."
        yield f"# TYPE vllm:{name}_total counter"
        yield from (f"vllm:{name}_total{{{labels}}} 155722.0" for labels in engines)
        yield f"# HELP vllm:{name}_created Number of {name.replace('_', ' ')}."
        yield f"# TYPE vllm:{name}_created gauge"
        yield from (f"vllm:{name}_created{{{labels}}} 1.7886264577368872e+09" for labels in engines)
    for name, bounds in _VLLM_HISTOGRAMS.items():
        yield from _histogram(f"vllm:{name}", bounds, engines)


def _lora_lines(load: Load) -> Iterator[str]:
    if load.slots:
        yield "# HELP vllm:lora_requests_info Running stats on lora requests."
        yield "# TYPE vllm:lora_requests_info gauge"
        for number, names in enumerate([*load.before, load.active]):
            text = ",".join(names)
            labels = f'max_lora="{load.slots}",running_lora_adapters="{text}",waiting_lora_adapters="{text}"'
            yield f"vllm:lora_requests_info{{{labels}}} {1.7886264577368872e09 + number!r}"
    if load.resident is not None:
        yield "# HELP vllm:lora_adapter_loaded Whether a LoRA adapter is loaded."
        yield "# TYPE vllm:lora_adapter_loaded gauge"
        for name, level in load.resident.items():
            yield f'vllm:lora_adapter_loaded{{adapter_name="{name}",level="{level}",pinned="false"}} 1.0'
        yield from _gauge("vllm:max_gpu_lora_adapters", "Slots of adapters.", [""], float(load.slots))


def sglang_page(load: Load, *, ranks: int = 1) -> bytes:
    """SGLang's page; with several ranks as with the metrics of all schedulers, and with a series by priority.

    Several engines are those of data-parallel attention, whose tensor ranks are numbered through.
    """
    whole = f'engine_type="unified",model_name="{MODEL}",pp_rank="0",tp_rank="{{0}}"'
    engines = [f',dp_rank="{number}"' if load.engines > 1 else "" for number in range(load.engines)]
    # The last rank stands first: Prometheus' clients keep no order.
    series = [whole.format(at * ranks + rank) + each for at, each in enumerate(engines) for rank in range(ranks)][::-1]
    caches = [f'num_pages="4096",page_size="64",{each}' for each in series]
    lines = [
        *_gauge("sglang:num_running_reqs", "The number of running requests.", series, load.running),
        f'sglang:num_running_reqs{{{whole.format(0)},priority="0"}} {load.running!r}',
        *_gauge("sglang:num_queue_reqs", "The number of requests in the waiting queue.", series, load.queued),
        f'sglang:num_queue_reqs{{{whole.format(0)},priority="0"}} {load.queued!r}',
        *_gauge("sglang:token_usage", "The token usage.", series, load.kv_usage),
        *_gauge("sglang:gen_throughput", "The generation throughput (token/s).", series, 86.50814177726902),
        *_gauge("sglang:cache_config_info", "Cache.", caches, 1.0),
        *_histogram("sglang:time_to_first_token_seconds", _SECONDS, series[:1]),
        *_histogram("sglang:e2e_request_latency_seconds", _SECONDS, series[:1]),
    ]
    return "\n".join((*lines, "")).encode()


def triton_page(load: Load) -> bytes:
    """Triton's page with the TensorRT-LLM backend; whole numbers stand without a point."""
    requests = {"waiting": load.queued, "context": 1, "scheduled": load.running, "max": 512, "active": load.running}
    blocks = {"fraction": load.kv_usage, "tokens_per": 64, "used": 1, "free": 6238, "max": 6239}
    lines = [
        "# HELP nv_inference_request_success Number of successful inference requests, all batch sizes",
        "# TYPE nv_inference_request_success counter",
        'nv_inference_request_success{model="tensorrt_llm",version="1"} 18',
        "# HELP nv_trt_llm_request_metrics TRT LLM request metrics",
        "# TYPE nv_trt_llm_request_metrics gauge",
        *(_triton_line("nv_trt_llm_request_metrics", "request_type", *each) for each in requests.items()),
        "# HELP nv_trt_llm_kv_cache_block_metrics TRT LLM KV cache block metrics",
        "# TYPE nv_trt_llm_kv_cache_block_metrics gauge",
        *(_triton_line("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", *each) for each in blocks.items()),
    ]
    return "\n".join((*lines, "")).encode()


def _triton_line(name: str, label: str, kind: str, value: float) -> str:
    # The label of the kind sorts before `model` in one metric and behind it in the other.
    labels = ",".join(sorted((f'{label}="{kind}"', 'model="tensorrt_llm"', 'version="1"')))
    return f"{name}{{{labels}}} {value:g}"


def _gauge(name: str, told: str, series: Iterable[str], value: float) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} gauge"
    yield from (f"{name}{{{labels}}} {value!r}" if labels else f"{name} {value!r}" for labels in series)


def _histogram(name: str, bounds: tuple[float, ...], series: Iterable[str]) -> Iterator[str]:
    yield f"# HELP {name} Histogram of {name.replace('_', ' ')}."
    yield f"# TYPE {name} histogram"
    for labels in series:
        for number, bound in enumerate((*bounds, "+Inf")):
            yield f'{name}_bucket{{{labels},le="{bound}"}} {float(number)!r}'
        yield f"{name}_count{{{labels}}} {float(len(bounds))!r}"
        yield f"{name}_sum{{{labels}}} 1.2340500354766846"
