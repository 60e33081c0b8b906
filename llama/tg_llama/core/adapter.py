"""GGUF file of a LoRA adapter -> llama.cpp: what is added to a model's weights, for every context of the model."""

from itertools import count
from pathlib import Path

from tg_llama.core.library import native
from tg_llama.core.model import Model
from tg_schema.errors import Unavailable

_numbers = count(1)


class Adapter:
    """A loaded adapter. Loads and closes of one model's adapters must not overlap: llama.cpp keeps a list of them.

    Attributes:
        name: what requests call it.
        number: of this load; no other one has it, so what was evaluated with an earlier file is never taken for its.
    """

    def __init__(self, model: Model, name: str, path: Path) -> None:
        """Load `path`; blocks.

        Raises:
            Unavailable: it cannot be read, or is no LoRA adapter of this model.
        """
        self.name = name
        self.number = next(_numbers)
        self.pointer = native.llama_adapter_lora_init(model.pointer, str(path).encode())
        if not self.pointer:
            raise Unavailable(
                f"llama.cpp cannot load the adapter {name!r}: its file must be a LoRA adapter of this model, as GGUF"
            )

    def close(self) -> None:
        """Free the memory; no context may have it in use."""
        pointer, self.pointer = self.pointer, None
        if pointer:
            native.llama_adapter_lora_free(pointer)
