"""Models in this process -> vLLM's metrics of their load, by which gateways for model servers pick one."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

Item = TypeVar("Item")

LOAD_REQUEST_HEADER = "endpoint-load-metrics-format"
"""Asks a server for its load in ORCA's format: `text` or `json`."""
LOAD_RESPONSE_HEADER = "endpoint-load-metrics"
"""Has the load, if the server knows this."""
BLOCK_TOKENS = 16
"""Tokens per block in which the cache's size is reported: vLLM's default."""


@dataclass(frozen=True, slots=True)
class AdapterLoad:
    """A model's LoRA adapters.

    Attributes:
        slots: adapters in memory at most.
        resident: those in memory.
        running: requests in the batch, by adapter.
        waiting: requests that wait, by adapter.
    """

    slots: int
    resident: tuple[str, ...] = ()
    running: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """The load of a model at one moment.

    Attributes:
        model: its name here.
        running: requests in the batch.
        waiting: requests that wait.
        cached: tokens in the KV cache that running requests hold.
        cache: tokens for which the cache has room.
        adapters: None = it has none.
    """

    model: str
    running: int
    waiting: int
    cached: int
    cache: int
    adapters: AdapterLoad | None = None

    @property
    def cache_usage(self) -> float:
        """The share of the cache in use, from 0 to 1."""
        return min(1.0, self.cached / max(1, self.cache))


class ModelLoads(Collector):
    """The models that are open in this process, and the requests that it has asked of them."""

    def __init__(self) -> None:
        self._models: dict[object, Callable[[], ModelLoad]] = {}
        self._counts: dict[object, Callable[[str], int]] = {}
        REGISTRY.register(self)

    def watch(self, look: Callable[[], ModelLoad]) -> Callable[[], None]:
        """Show a model from now on. Returns a function that ends that, which may be called more than once."""
        return _add(self._models, look)

    def count(self, unanswered: Callable[[str], int]) -> Callable[[], None]:
        """Count the unanswered requests for a model from now on; returns as `watch`.

        A processor takes no more requests than it has slots. The others wait in its queue, where only their requestors
        know of them.
        """
        return _add(self._counts, unanswered)

    def look(self, model: str) -> ModelLoad | None:
        """The load of a model that is open here; None = there is none of this name."""
        return self._loads().get(model)

    def _loads(self) -> dict[str, ModelLoad]:
        """The load of each model, by its name. A model that is being replaced is open twice."""
        looks = [look() for look in tuple(self._models.values())]
        models = dict.fromkeys(load.model for load in looks)
        return {model: self._join([load for load in looks if load.model == model]) for model in models}

    def _join(self, loads: Sequence[ModelLoad]) -> ModelLoad:
        newest, running = loads[-1], sum(load.running for load in loads)
        unanswered = sum(count(newest.model) for count in tuple(self._counts.values()))
        waiting = max(sum(load.waiting for load in loads), unanswered - running)
        cached, cache = sum(load.cached for load in loads), sum(load.cache for load in loads)
        return ModelLoad(newest.model, running, waiting, cached, cache, newest.adapters)

    @override
    def collect(self) -> Iterable[GaugeMetricFamily]:
        loads = self._loads().values()
        if not loads:
            return
        yield _gauge("vllm:num_requests_running", "Requests in the batch", {load.model: load.running for load in loads})
        yield _gauge("vllm:num_requests_waiting", "Requests that wait", {load.model: load.waiting for load in loads})
        # Pickers before 2026 know the second name alone.
        for name in ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"):
            yield _gauge(name, "Share of the KV cache in use", {load.model: load.cache_usage for load in loads})
        sizes = GaugeMetricFamily(
            "vllm:cache_config_info", "The KV cache", labels=["model_name", "block_size", "num_gpu_blocks"]
        )
        for load in loads:
            sizes.add_metric([load.model, str(BLOCK_TOKENS), str(load.cache // BLOCK_TOKENS)], 1)
        yield sizes
        yield from _collect_adapters([(load.model, load.adapters) for load in loads if load.adapters is not None])


def _add(those: dict[object, Item], item: Item) -> Callable[[], None]:
    key = object()
    those[key] = item

    def end() -> None:
        those.pop(key, None)

    return end


def _gauge(name: str, documentation: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, documentation, labels=["model_name"])
    for model, value in values.items():
        family.add_metric([model], value)
    return family


def _collect_adapters(loads: Iterable[tuple[str, AdapterLoad]]) -> Iterable[GaugeMetricFamily]:
    info_labels = ["model_name", "max_lora", "running_lora_adapters", "waiting_lora_adapters"]
    info = GaugeMetricFamily("vllm:lora_requests_info", "Adapters with requests; a time", labels=info_labels)
    loaded_labels = ["model_name", "adapter_name", "level", "pinned"]
    loaded = GaugeMetricFamily("vllm:lora_adapter_loaded", "Adapters in memory", labels=loaded_labels)
    most = GaugeMetricFamily("vllm:max_gpu_lora_adapters", "Adapters in memory at most", labels=["model_name"])
    number = GaugeMetricFamily("vllm:num_gpu_loaded_lora_adapters", "Adapters in memory", labels=["model_name"])
    requests = GaugeMetricFamily(
        "tg_adapter_requests", "Requests of an adapter", labels=["model_name", "adapter_name", "state"]
    )
    for model, load in loads:
        info.add_metric([model, str(load.slots), *map(_list, (load.running, load.waiting))], time.time())
        most.add_metric([model], load.slots)
        number.add_metric([model], len(load.resident))
        for name in load.resident:
            # The level "gpu" means ready to run: adapters are where the model is, here in the memory of the CPU.
            loaded.add_metric([model, name, "gpu", "false"], 1)
        for state, counts in (("running", load.running), ("waiting", load.waiting)):
            for name, count in counts.items():
                requests.add_metric([model, name, state], count)
    return info, loaded, most, number, requests


def _list(counts: Mapping[str, int]) -> str:
    return ",".join(sorted(name for name, count in counts.items() if count))


MODEL_LOADS = ModelLoads()
