"""Models in this process -> vLLM's metrics of their load, by which gateways for model servers pick one."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client import REGISTRY
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from tg_base.telemetry.metrics import (
    ADAPTER_REQUESTS,
    VLLM_CACHE,
    VLLM_CACHE_CONFIG,
    VLLM_LORA_INFO,
    VLLM_LORA_LOADED,
    VLLM_LORA_MOST,
    VLLM_LORA_NUMBER,
    VLLM_RUNNING,
    VLLM_WAITING,
)

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
        slots: most adapters in memory.
        resident: the adapters in memory.
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
        adapters: its LoRA adapters; None = it has none.
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
    def collect(self) -> Iterable[Metric]:
        loads = self._loads().values()
        if not loads:
            return
        yield VLLM_RUNNING.family(((load.model,), load.running) for load in loads)
        yield VLLM_WAITING.family(((load.model,), load.waiting) for load in loads)
        for name in VLLM_CACHE:
            yield name.family(((load.model,), load.cache_usage) for load in loads)
        yield VLLM_CACHE_CONFIG.family(
            ((load.model, str(BLOCK_TOKENS), str(load.cache // BLOCK_TOKENS)), 1) for load in loads
        )
        yield from _collect_adapters([(load.model, load.adapters) for load in loads if load.adapters is not None])


def _add(those: dict[object, Item], item: Item) -> Callable[[], None]:
    key = object()
    those[key] = item

    def end() -> None:
        those.pop(key, None)

    return end


def _collect_adapters(loads: Sequence[tuple[str, AdapterLoad]]) -> Iterator[Metric]:
    yield VLLM_LORA_INFO.family(
        ((model, str(load.slots), *map(_list, (load.running, load.waiting))), time.time()) for model, load in loads
    )
    # The level "gpu" means ready to run: adapters are where the model is, here in the memory of the CPU.
    yield VLLM_LORA_LOADED.family(((model, name, "gpu", "false"), 1) for model, load in loads for name in load.resident)
    yield VLLM_LORA_MOST.family(((model,), load.slots) for model, load in loads)
    yield VLLM_LORA_NUMBER.family(((model,), len(load.resident)) for model, load in loads)
    yield ADAPTER_REQUESTS.family(
        ((model, name, state), count)
        for model, load in loads
        for state, counts in (("running", load.running), ("waiting", load.waiting))
        for name, count in counts.items()
    )


def _list(counts: Mapping[str, int]) -> str:
    return ",".join(sorted(name for name, count in counts.items() if count))


MODEL_LOADS = ModelLoads()
