"""The packaged file -> a model that engines can run, by NumPy alone."""

from collections.abc import Sequence
from pathlib import Path

from tg_llama.core import Adapter, EngineSizes, VectorContext
from tg_llama.demo.byte_pairs import BytePairs
from tg_llama.demo.demo_context import DemoContext
from tg_llama.demo.demo_layers import DemoLayers
from tg_llama.demo.demo_sampler import DemoSampler
from tg_llama.demo.gguf_file import GgufFile
from tg_llama.grammar import TokenGrammars
from tg_llama.models import DEMO_MODEL
from tg_llama.sampling import SamplerSettings
from tg_schema.errors import BadRequest


class DemoModel(BytePairs):
    """See `core.Model`."""

    writes = True
    divisible = False
    dimensions = 0

    def __init__(self) -> None:
        file = GgufFile(DEMO_MODEL)
        super().__init__(file)
        self.vocabulary = len(self.pieces)
        self.context_length = file.size("context_length")
        self.grammars = TokenGrammars(self.pieces, self.end_tokens)
        self._layers = DemoLayers(file)

    def open_context(self, *, sequences: int, tokens: int, batch: int, threads: int) -> DemoContext:
        """See `core.Model`."""
        return DemoContext(self._layers, sequences)

    def make_sampler(
        self, settings: SamplerSettings, longest: int, grammar: str | None, prompt: Sequence[int]
    ) -> DemoSampler:
        """See `core.Model`."""
        return DemoSampler(settings, self.grammars.start(grammar) if grammar else None, self.end_tokens)

    def open_vectors(self, sizes: EngineSizes) -> VectorContext:
        """See `core.Model`."""
        raise BadRequest("the demo model gives no vectors: ask another model")

    def load_adapter(self, name: str, path: Path) -> Adapter:
        """See `core.Model`."""
        raise BadRequest("the demo model takes no adapters: ask another model")

    def close(self) -> None:
        """See `core.Model`: the memory is Python's."""
