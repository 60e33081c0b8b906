"""Embedder -> llama.cpp: a context whose steps give a vector for each token."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from tg_llama.core import EngineSizes, Floats
from tg_llama.native.context import Context
from tg_llama.native.library import native
from tg_llama.native.weights import Weights

MAX_LOGITS_BYTES = 64 * 1024 * 1024
"""Memory for the logits of a step, which llama.cpp computes for each token beside its vector."""

MAX_TEXTS = 64
"""Texts of one step."""

MIN_ROWS = 16


class VectorContext(Context):
    """A context of llama.cpp, used by the engine's thread alone.

    Attributes:
        rows: the most tokens of a step.
        sequences: the most texts of a step.
        whole: whether a text must be evaluated in one step: the model is an encoder, without memory of earlier steps.
    """

    def __init__(self, model: Weights, sizes: EngineSizes) -> None:
        """Raises: Unavailable, if there is not enough memory."""
        self.whole = not model.writes
        least = sizes.context if self.whole else MIN_ROWS
        self.rows = max(least, min(sizes.batch, MAX_LOGITS_BYTES // (4 * model.vocabulary)))
        self.sequences = min(MAX_TEXTS, self.rows)
        self._width = model.dimensions
        super().__init__(model, sequences=self.sequences, tokens=sizes.context, batch=self.rows, threads=sizes.threads)

    @override
    def _settings(self, sequences: int, tokens: int) -> Any:
        wanted = super()._settings(sequences, tokens)
        # One memory for all texts: one of them may go on from the step before, the others fill the batch.
        wanted.kv_unified = True
        wanted.n_ctx = tokens + self.rows
        wanted.n_outputs_max = self.rows
        wanted.embeddings = True
        # Pool here, since llama.cpp can only pool a text that fits into one step.
        wanted.pooling_type = native.LLAMA_POOLING_TYPE_NONE
        return wanted

    def evaluate(self, texts: Sequence[tuple[int, int, Sequence[int]]]) -> Floats | None:
        """Evaluate the next tokens of some texts, and return a vector for each token.

        Args:
            texts: each with its sequence, the position of its first token, and the tokens; at most `rows` in all.

        Returns:
            One row for each token, valid until the next call; None if llama.cpp could not evaluate them.
        """
        tokens = [token for _, _, ids in texts for token in ids]
        positions = [start + number for _, start, ids in texts for number in range(len(ids))]
        sequences = [sequence for sequence, _, ids in texts for _ in ids]
        if self.decode(tokens, positions, sequences, [1] * len(tokens)):
            return None
        pointer = native.llama_get_embeddings(self.pointer)
        numbers: Floats = np.ctypeslib.as_array(pointer, (len(tokens), self._width))
        return numbers

    def forget(self, sequence: int) -> None:
        """Free the memory of a text."""
        if not self.whole:
            self.keep(sequence, 0)
