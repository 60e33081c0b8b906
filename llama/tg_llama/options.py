"""[models.NAME.options] of llama-cpp -> its provider: the file, and the sizes of the engines."""

import os
from typing import Annotated

import msgspec

from tg_llama.core import EngineSizes
from tg_llama.in_process import SamplingOptions
from tg_llama.lora import AdapterName

SMALL_MODEL_PARAMETERS = 64_000_000
"""Bytes of weights up to which one thread computes a step faster than several, which must synchronize."""

MAX_DEFAULT_CONTEXT_TOKENS = 4096
"""Largest default of tokens per slot; less if the model was trained with less. Memory grows with it."""


class LlamaCppOptions(SamplingOptions, frozen=True, kw_only=True):
    """The options of a llama-cpp model.

    Attributes:
        path: "" for the packaged demo model, `PATH.gguf`, or `hf:OWNER/NAME/FILE`.
        slots: most concurrent streams.
        context: tokens of prompt and answer per slot; None = the model's training length, at most 4096.
        engines: contexts that share the streams, each with its own thread and memory; None = 2 for a model below 64 MB,
            else 1.
        threads: threads per engine that compute one step; None = 1 for a model below 64 MB, else one per CPU.
        batch: most tokens evaluated in one step.
        waiting: most requests waiting for a slot; further ones are refused as rate-limited.
        adapters: the files of LoRA adapters by name, each given as `path` is; each is loaded for its first request.
        adapter_folder: the folder from which adapters may be loaded at run time; "" = nobody may load one.
        max_resident_adapters: most adapters in memory.
    """

    slots: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16
    context: Annotated[int, msgspec.Meta(ge=16, le=2**20)] | None = None
    engines: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] | None = None
    batch: Annotated[int, msgspec.Meta(ge=1, le=8192)] = 512
    waiting: Annotated[int, msgspec.Meta(ge=0)] = 256
    adapters: dict[AdapterName, str] = msgspec.field(default_factory=dict)
    adapter_folder: str = ""
    max_resident_adapters: Annotated[int, msgspec.Meta(ge=1, le=256)] = 4

    def sizes(self, trained: int, size: int) -> EngineSizes:
        """The sizes for a model of `size` bytes with a training context of `trained` tokens."""
        small = size <= SMALL_MODEL_PARAMETERS
        cores = os.cpu_count() or 1
        return EngineSizes(
            slots=self.slots,
            engines=min(self.engines or (2 if small else 1), self.slots, cores),
            context=self.context or min(trained, MAX_DEFAULT_CONTEXT_TOKENS),
            threads=self.threads or (1 if small else cores),
            batch=self.batch,
            waiting=self.waiting,
            adapters=self.max_resident_adapters,
        )
