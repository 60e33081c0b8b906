"""Engine -> llama.cpp: one context, which returns logits or vectors. Its sequences are numbered 0 to n - 1, no gaps."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from tg_llama.core import EngineSizes, Floats, State
from tg_llama.native.library import hold_interpreter_lock, native
from tg_llama.native.weights import Adapter, Weights
from tg_schema.errors import Internal, Unavailable

_remove = hold_interpreter_lock(native.llama_memory_seq_rm)
_logits = hold_interpreter_lock(native.llama_get_logits_ith)

_Sequence = ctypes.POINTER(ctypes.c_int32)

MAX_SCORED_BYTES = 32 * 1024 * 1024
"""Memory for the logits of tokens that are scored in one step, in bytes."""

MAX_LOGITS_BYTES = 64 * 1024 * 1024
"""Memory for the logits of a step of vectors, in bytes: llama.cpp computes logits for each token besides its vector."""

MAX_TEXTS = 64
"""Most texts of one step."""

MIN_ROWS = 16


class Context:
    """A `llama_context` with its batch. Every method belongs to the engine's thread.

    Each sequence has separate memory (`kv_unified` off), so that a token attends only to its own stream, and a stream's
    floating point sums do not depend on its neighbours. llama.cpp evaluates such sequences together only if their
    numbers are consecutive: `copy` can close a gap.

    Attributes:
        outputs: the most rows of a step that can give logits.
    """

    def __init__(self, model: Weights, *, sequences: int, tokens: int, batch: int, threads: int) -> None:
        """Allocate memory for `sequences` streams of `tokens` tokens; a step evaluates at most `batch` tokens.

        Raises:
            Unavailable: there is not enough memory.
        """
        # One row for each stream, plus rows for tokens that are scored.
        self.outputs = sequences + min(batch, MAX_SCORED_BYTES // (4 * model.vocabulary))
        wanted = self._settings(sequences, tokens)
        # Set both to the same value, or llama.cpp would split one step into several runs.
        wanted.n_batch = wanted.n_ubatch = batch
        wanted.n_threads = wanted.n_threads_batch = threads
        self.pointer = native.llama_init_from_model(model.pointer, wanted)
        if not self.pointer:
            raise Unavailable(
                f"not enough memory for {sequences} slots of {tokens} tokens: lower `slots` or `context` of llama-cpp"
            )
        self._memory = native.llama_get_memory(self.pointer)
        self._vocabulary = model.vocabulary
        self._divisible = model.divisible
        self._adapter: Adapter | None = None
        self._evaluate = native.llama_decode if model.writes else native.llama_encode
        self._allocate(sequences, batch)

    def _settings(self, sequences: int, tokens: int) -> Any:
        """llama.cpp's parameters, except the sizes of a step."""
        wanted = native.llama_context_default_params()
        wanted.n_ctx = sequences * tokens
        wanted.n_seq_max = sequences
        # Reserve logits only for the rows that need them: a vocabulary's worth of floats for each token would be huge.
        wanted.n_outputs_max = self.outputs
        wanted.kv_unified = False
        wanted.no_perf = True
        return wanted

    def _allocate(self, sequences: int, batch: int) -> None:
        self._token: Any = (ctypes.c_int32 * batch)()
        self._position: Any = (ctypes.c_int32 * batch)()
        self._output: Any = (ctypes.c_int8 * batch)()
        self._sequence: Any = (_Sequence * batch)()
        # Each row belongs to exactly one sequence, so the same ones serve every batch.
        self._one = (ctypes.c_int32 * batch)(*[1] * batch)
        # Create these once: llama.cpp takes a pointer per row, and creating them in each step costs more than copying.
        self._pointers = [ctypes.pointer(ctypes.c_int32(number)) for number in range(sequences)]
        self._batch = native.llama_batch(
            n_tokens=0,
            token=self._token,
            embd=None,
            pos=self._position,
            n_seq_id=self._one,
            seq_id=self._sequence,
            logits=self._output,
        )

    def decode(
        self,
        tokens: list[int],
        positions: list[int],
        sequences: list[int],
        outputs: list[int],
    ) -> int:
        """Evaluate one batch; each row has a token, its position, its sequence, and 1 if its logits are wanted.

        Returns:
            0, or llama.cpp's error number; then the memory of these sequences is undefined.
        """
        count = len(tokens)
        self._token[:count] = tokens
        self._position[:count] = positions
        self._output[:count] = outputs
        pointers = self._pointers
        self._sequence[:count] = [pointers[number] for number in sequences]
        self._batch.n_tokens = count
        return int(self._evaluate(self.pointer, self._batch))

    def use(self, adapter: Adapter | None) -> None:
        """Evaluate with `adapter` from now on; None = the base model. A change costs the next step about 1 ms."""
        if adapter is self._adapter:
            return
        self._adapter = adapter
        pointers = (native.llama_adapter_lora_p_ctypes * 1)(*[] if adapter is None else [adapter.pointer])
        native.llama_set_adapters_lora(self.pointer, pointers, int(adapter is not None), (ctypes.c_float * 1)(1.0))

    def logits(self, row: int) -> Floats:
        """The logits of batch row `row`, valid until the next `decode`. Samplers see changes of the array."""
        pointer = _logits(self.pointer, row)
        numbers: Floats = np.ctypeslib.as_array(pointer, (self._vocabulary,))
        return numbers

    def keep(self, sequence: int, tokens: int) -> int:
        """Forget a sequence from token `tokens` on. Returns how many tokens remain: `tokens`, or 0."""
        # A recurrent memory, or one with a sliding window, cannot be cut: such a sequence is removed as a whole.
        if tokens and self._divisible and _remove(self._memory, sequence, tokens, -1):
            return tokens
        _remove(self._memory, sequence, -1, -1)
        return 0

    def copy(self, source: int, target: int) -> None:
        """Copy sequence `source` to sequence `target`.

        Raises:
            Internal: llama.cpp rejected the copy, although there is memory for it.
        """
        # Do not use `llama_memory_seq_cp`: between two memories it copies both whole, used or not, and only in the next
        # step, so that an earlier read of the target would get old content.
        if not self.restore(target, self.save(source)):
            raise Internal("the memory of a stream could not be copied")

    def save(self, sequence: int) -> State:
        """A copy of a sequence's memory, which any context of the same model can restore."""
        room = native.llama_state_seq_get_size(self.pointer, sequence)
        state: State = (ctypes.c_ubyte * room)()
        native.llama_state_seq_get_data(self.pointer, state, room, sequence)
        return state

    def restore(self, sequence: int, state: State) -> bool:
        """Replace the memory of a sequence; False if that failed, and the sequence is empty."""
        _remove(self._memory, sequence, -1, -1)
        if native.llama_state_seq_set_data(self.pointer, state, len(state), sequence):
            return True
        _remove(self._memory, sequence, -1, -1)
        return False

    def close(self) -> None:
        """Free the memory; the context must not be used afterwards."""
        pointer, self.pointer = self.pointer, None
        if pointer:
            native.llama_free(pointer)


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
        # Share one memory among all texts: one of them may continue from the previous step, the others fill the batch.
        wanted.kv_unified = True
        wanted.n_ctx = tokens + self.rows
        wanted.n_outputs_max = self.rows
        wanted.embeddings = True
        # Do the pooling here, since llama.cpp can only pool a text that fits into one step.
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
