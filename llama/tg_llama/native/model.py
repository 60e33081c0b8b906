"""GGUF file -> a model that engines can run."""

from collections.abc import Sequence
from pathlib import Path

from tg_llama.core import EngineSizes, SamplerSettings
from tg_llama.native.context import Context, VectorContext
from tg_llama.native.sampler import GrammarSampler, Sampler
from tg_llama.native.weights import Adapter, Weights


class Model(Weights):
    """See `core.Model`."""

    def open_context(self, *, sequences: int, tokens: int, batch: int, threads: int) -> Context:
        """See `core.Model`."""
        return Context(self, sequences=sequences, tokens=tokens, batch=batch, threads=threads)

    def make_sampler(
        self, settings: SamplerSettings, longest: int, grammar: str | None, prompt: Sequence[int]
    ) -> Sampler:
        """See `core.Model`."""
        if grammar:
            return GrammarSampler(self, settings, longest, grammar, prompt)
        return Sampler(self, settings, longest, prompt)

    def open_vectors(self, sizes: EngineSizes) -> VectorContext:
        """See `core.Model`."""
        return VectorContext(self, sizes)

    def load_adapter(self, name: str, path: Path) -> Adapter:
        """See `core.Model`."""
        return Adapter(self, name, path)
