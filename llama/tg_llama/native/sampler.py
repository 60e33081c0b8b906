"""Logits -> token: one chain of llama.cpp's samplers for each stream."""

import ctypes
from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from tg_llama.core import LogitBias, SamplerSettings
from tg_llama.grammar import take_begun
from tg_llama.native.context import Context
from tg_llama.native.library import hold_interpreter_lock, native
from tg_llama.native.weights import Weights
from tg_schema.errors import ProtocolError

_sample = hold_interpreter_lock(native.llama_sampler_sample)
_accept = hold_interpreter_lock(native.llama_sampler_accept)


class Sampler:
    """Belongs to the engine's thread.

    Presence and frequency penalties count only the answer's tokens; the repetition penalty counts the prompt's too.
    """

    def __init__(self, model: Weights, settings: SamplerSettings, longest: int, prompt: Sequence[int] = ()) -> None:
        """`longest` is the most tokens of the answer. Penalties allocate memory for all of them at once."""
        self.chain = native.llama_sampler_chain_init(native.llama_sampler_chain_default_params())
        if settings.logit_bias:
            self._add(_logit_bias(settings.logit_bias, model.vocabulary))
        if settings.repetition_penalty != 1:
            self._add(_repetition_penalty(model, settings.repetition_penalty, longest, prompt))
        if settings.presence_penalty or settings.frequency_penalty:
            self._add(
                native.llama_sampler_init_penalties(
                    model.vocabulary, longest, 1.0, settings.frequency_penalty, settings.presence_penalty
                )
            )
        # A greedy sampler leaves one token. The chain below would sort the whole vocabulary to find it.
        if settings.is_greedy:
            self._add(native.llama_sampler_init_greedy())
            return
        # Use llama.cpp's usual order: each sampler chooses among the tokens that the previous one has left.
        if settings.top_k:
            self._add(native.llama_sampler_init_top_k(settings.top_k))
        if settings.typical_p < 1:
            self._add(native.llama_sampler_init_typical(settings.typical_p, 1))
        if settings.top_p < 1:
            self._add(native.llama_sampler_init_top_p(settings.top_p, 1))
        if settings.min_p:
            self._add(native.llama_sampler_init_min_p(settings.min_p, 1))
        self._add(native.llama_sampler_init_temp(settings.temperature))
        self._add(native.llama_sampler_init_dist(settings.seed))

    def _add(self, sampler: object) -> None:
        native.llama_sampler_chain_add(self.chain, sampler)

    def sample(self, context: Context, row: int) -> int:
        """Choose the token that follows batch row `row`."""
        token: int = _sample(self.chain, context.pointer, row)
        return token

    def accept(self, token: int) -> None:
        """See `core.Sampler`."""
        _accept(self.chain, token)

    def close(self) -> None:
        """Free the chain; the sampler must not be used afterwards."""
        chain, self.chain = self.chain, None
        if chain:
            native.llama_sampler_free(chain)


def _logit_bias(bias: LogitBias, vocabulary: int) -> object:
    rows = (native.llama_logit_bias * len(bias.rows)).from_buffer(bias.rows)
    return native.llama_sampler_init_logit_bias(vocabulary, len(bias.rows), rows)


def _repetition_penalty(model: Weights, penalty: float, longest: int, prompt: Sequence[int]) -> object:
    sampler = native.llama_sampler_init_penalties(model.vocabulary, len(prompt) + longest, penalty, 0.0, 0.0)
    for token in prompt:
        _accept(sampler, token)
    return sampler


_apply = hold_interpreter_lock(native.llama_sampler_apply)

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_Tokens = np.ndarray[tuple[int, ...], np.dtype[np.int32]]


class GrammarSampler(Sampler):
    """Chooses a token freely first. Only if the grammar forbids it, it chooses among the grammar's tokens.

    Asking the grammar about one token costs a microsecond or two. Asking about a whole vocabulary costs ten times as
    much, and releases the interpreter lock.
    """

    def __init__(
        self, model: Weights, settings: SamplerSettings, longest: int, grammar: str, prompt: Sequence[int] = ()
    ) -> None:
        """Raises: BadRequest, if `grammar` cannot be read."""
        # Do this first, since it may fail, and nothing must be freed then.
        self._matcher = model.grammars.start(grammar)
        super().__init__(model, settings, longest, prompt)
        self._grammars = model.grammars
        self._end_tokens = model.end_tokens
        self._every = np.arange(model.vocabulary, dtype=np.int32)
        self._bits = np.zeros((model.vocabulary + 31) // 32, dtype=np.uint32)
        self._candidates = np.zeros(model.vocabulary, dtype=_CANDIDATE)

    @override
    def sample(self, context: Context, row: int) -> int:
        logits = context.logits(row)
        token = self._choose(self._every, logits)
        ends = token in self._end_tokens
        if not (self._matcher.is_accepting() if ends else self._matcher.validate_tokens([token])):
            token = self._choose(self._allowed(logits), logits)
        if token not in self._end_tokens:
            self._matcher.consume_token(token)
        # `llama_sampler_sample` would call this itself, but the grammar must be asked in between.
        _accept(self.chain, token)
        return token

    @override
    def accept(self, token: int) -> None:
        take_begun(self._matcher, token)
        super().accept(token)

    def _allowed(self, logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> _Tokens:
        """The tokens that the grammar allows next, except those whose logit is minus infinity."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        # After an error the mask allows the end tokens, as if the answer were complete.
        if self._matcher.is_error():
            self._grammars.clear()
            raise ProtocolError("the form of the answer takes too much work to enforce; use a simpler one")
        bits = np.unpackbits(self._bits.view(np.uint8), count=len(self._every), bitorder="little")
        allowed: _Tokens = self._every[(bits != 0) & np.isfinite(logits)]
        if not len(allowed):
            raise ProtocolError("the model has no token that continues an answer of this form; use a simpler one")
        return allowed

    def _choose(self, tokens: _Tokens, logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> int:
        candidates = self._candidates[: len(tokens)]
        candidates["id"] = tokens
        candidates["logit"] = logits[tokens]
        array = _array(candidates)
        _apply(self.chain, ctypes.byref(array))
        return int(array.data[array.selected].id)


def _array(candidates: np.ndarray[tuple[int, ...], np.dtype[np.void]]) -> ctypes.Structure:
    """A native view of `candidates`, which must outlive the view."""
    pointer = candidates.ctypes.data_as(ctypes.POINTER(native.llama_token_data))
    array: ctypes.Structure = native.llama_token_data_array(pointer, len(candidates), -1, False)
    return array
