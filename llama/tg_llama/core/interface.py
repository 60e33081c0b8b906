"""The interface of a model for the engine, implemented for llama.cpp and for the demo model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np

from tg_llama.core.sampler_settings import SamplerSettings
from tg_llama.grammar import TokenGrammars
from tg_schema.text_completion import Pooling

CONTROL_TOKEN = 8
"""The flag `LLAMA_TOKEN_ATTR_CONTROL` in llama.h."""
Floats = np.ndarray[Any, np.dtype[np.float32]]
State = Any
"""A copy of a sequence's memory."""
OwnPooling = Pooling | Literal["cls"]
"""The pooling that a request may choose; or "cls", the vector of the first token, which some models use."""


class EngineSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of the engines.

    Attributes:
        slots: streams that each engine can generate side by side; one engine alone can take all of them.
        engines: contexts with a thread of their own, over which streams are spread.
        context: tokens of prompt and answer for each slot.
        threads: threads that compute one step of one engine.
        batch: tokens evaluated in one step at most; raised to `slots` if below.
        waiting: requests that may wait for each engine while all its slots are busy.
        adapters: LoRA adapters in memory at most, for all engines together.
    """

    slots: int
    context: int
    engines: int = 1
    threads: int = 1
    batch: int = 512
    waiting: int = 256
    adapters: int = 4


class Adapter(Protocol):
    """A loaded adapter.

    Attributes:
        name: what requests call it.
        number: unique to this load, so memory evaluated with an earlier file is never reused for it.
    """

    name: str
    number: int

    def close(self) -> None:
        """Free the memory; no context may have it in use."""


class Sampler(Protocol):
    """Chooses the tokens of one answer. Belongs to the engine's thread."""

    def sample(self, context: Any, row: int) -> int:
        """Choose the token that follows batch row `row` of a context of the same model.

        Raises:
            ProtocolError: no token fits the grammar.
        """

    def accept(self, token: int) -> None:
        """Tell the sampler that a token was chosen. Raises: BadRequest, if it does not fit the grammar."""

    def close(self) -> None:
        """Free the memory; the sampler must not be used afterwards."""


class Context(Protocol):
    """The memory of several sequences, numbered 0 to n - 1. Every method belongs to the engine's thread.

    Attributes:
        outputs: the most rows of a step that can give logits.
    """

    outputs: int

    def decode(self, tokens: list[int], positions: list[int], sequences: list[int], outputs: list[int]) -> int:
        """Evaluate one batch; each row has a token, its position, its sequence, and 1 if its logits are wanted.

        Returns:
            0, or an error number; then the memory of these sequences is undefined.
        """

    def use(self, adapter: Any) -> None:
        """Evaluate with an adapter of the same model from now on; None = the base model."""

    def logits(self, row: int) -> Floats:
        """The logits of batch row `row`, valid until the next `decode`. Samplers see changes of the array."""

    def keep(self, sequence: int, tokens: int) -> int:
        """Forget a sequence from token `tokens` on. Returns how many tokens remain: `tokens`, or 0."""

    def copy(self, source: int, target: int) -> None:
        """Copy sequence `source` to sequence `target`."""

    def save(self, sequence: int) -> State:
        """A copy of a sequence's memory, which any context of the same model can restore."""

    def restore(self, sequence: int, state: State) -> bool:
        """Replace the memory of a sequence; False if that failed, and the sequence is empty."""

    def close(self) -> None:
        """Free the memory; the context must not be used afterwards."""


class VectorContext(Protocol):
    """A context whose steps give a vector for each token.

    Attributes:
        rows: the most tokens of a step.
        sequences: the most texts of a step.
        whole: whether a text must be evaluated in one step: the model is an encoder, without memory of earlier steps.
    """

    rows: int
    sequences: int
    whole: bool

    def evaluate(self, texts: Sequence[tuple[int, int, Sequence[int]]]) -> Floats | None:
        """Evaluate the next tokens of some texts, and return a vector for each token.

        Args:
            texts: each with its sequence, the position of its first token, and the tokens; at most `rows` in all.

        Returns:
            One row for each token, valid until the next call; None if they could not be evaluated.
        """

    def forget(self, sequence: int) -> None:
        """Free the memory of a text."""

    def close(self) -> None:
        """Free all memory."""


class Model(Protocol):
    """A loaded model: its vocabulary, its chat template, and its evaluation. Any thread may call all but `close`.

    Attributes:
        context_length: tokens of context that the model was trained with.
        writes: whether it generates text; otherwise it is an encoder, which only gives vectors.
        dimensions: numbers in the vector of a token.
        vocabulary: the number of its tokens.
        end_tokens: the tokens that end an answer.
        grammars: its compiled grammars.
        divisible: whether a sequence's memory can be cut after a common prefix and reused.
    """

    context_length: int
    writes: bool
    dimensions: int
    vocabulary: int
    end_tokens: frozenset[int]
    grammars: TokenGrammars
    divisible: bool

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of each token; b"" for control tokens."""

    @property
    def longest_piece(self) -> int:
        """The most bytes of a token."""

    @property
    def chat_template(self) -> str | None:
        """The model's own Jinja template; None if it has none."""

    @property
    def begin(self) -> int | None:
        """The token at the beginning of every prompt; None if the model needs none."""

    @property
    def begin_text(self) -> str:
        """A template's `bos_token`."""

    @property
    def end_text(self) -> str:
        """A template's `eos_token`."""

    def special_text(self, token: int) -> str:
        """The text of `token` in a template."""

    def attributes(self, token: int) -> int:
        """The flags `LLAMA_TOKEN_ATTR_*` of `token`."""

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """The tokens of `text`; with `special`, names of control tokens become control tokens."""

    def open_context(self, *, sequences: int, tokens: int, batch: int, threads: int) -> Context:
        """Memory for `sequences` streams of `tokens` tokens; a step evaluates at most `batch` tokens.

        Raises:
            Unavailable: there is not enough memory.
        """

    def make_sampler(
        self, settings: SamplerSettings, longest: int, grammar: str | None, prompt: Sequence[int]
    ) -> Sampler:
        """The sampler of an answer of at most `longest` tokens. Raises: BadRequest, if `grammar` cannot be read."""

    def open_vectors(self, sizes: EngineSizes) -> VectorContext:
        """Memory for texts that become vectors. Raises: as `open_context`."""

    def load_adapter(self, name: str, path: Path) -> Adapter:
        """A LoRA adapter. Loads and closes of one model's adapters must not overlap.

        Raises:
            Unavailable: it cannot be read, or is no LoRA adapter of this model.
        """

    def close(self) -> None:
        """Free the weights; no context may use them afterwards."""
