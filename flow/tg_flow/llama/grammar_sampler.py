"""Logits -> token that a grammar allows."""

import ctypes
from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from tg_flow.llama.context import Context
from tg_flow.llama.library import hold_interpreter_lock, native
from tg_flow.llama.model import Model
from tg_flow.llama.sampler import Sampler
from tg_flow.llama.sampler_settings import SamplerSettings
from tg_flow.llama.utf8_tokens import incomplete
from tg_schema.errors import BadRequest, ProtocolError

_apply = hold_interpreter_lock(native.llama_sampler_apply)
_accept = hold_interpreter_lock(native.llama_sampler_accept)

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class GrammarSampler(Sampler):
    """Chooses freely first, and only where the grammar forbids that token looks at what it allows.

    Asking the grammar about one token costs microseconds, about a whole vocabulary milliseconds. A token is never
    accepted unasked: llama.cpp ends the process for one that does not fit.
    """

    def __init__(
        self, model: Model, settings: SamplerSettings, longest: int, grammar: str, prompt: Sequence[int] = ()
    ) -> None:
        """Raises: BadRequest, if llama.cpp cannot read `grammar`."""
        super().__init__(model, settings, longest, prompt)
        self._grammar = native.llama_sampler_init_grammar(model.vocab, grammar.encode(), b"root")
        if not self._grammar:
            super().close()
            raise BadRequest("the form of the answer cannot be turned into a grammar; make it simpler")
        self._end_tokens = model.end_tokens
        self._pieces = model.pieces
        self._utf8 = model.utf8
        self._unfinished = b""
        self._candidates = np.zeros(model.vocabulary, dtype=_CANDIDATE)

    @override
    def sample(self, context: Context, row: int) -> int:
        logits = np.ctypeslib.as_array(context.logits(row))
        token = self._choose(self._all(logits))
        if not self._allows(token, float(logits[token])):
            token = self._choose(self._mask(logits))
        if token not in self._end_tokens:
            _accept(self._grammar, token)
        # `llama_sampler_sample` would do this by itself, but it leaves no room for a look at the grammar in between.
        _accept(self.chain, token)
        self._unfinished = incomplete(self._unfinished + self._pieces[token]) or b""
        return token

    def _mask(self, logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> ctypes.Structure:
        allowed = self._all(logits)
        _apply(self._grammar, ctypes.byref(allowed))
        self._candidates["logit"][~self._utf8.after(self._unfinished)] = -np.inf
        if not np.isfinite(self._candidates["logit"]).any():
            raise ProtocolError("the model has no token that continues an answer of this form; use a simpler one")
        return allowed

    def _all(self, logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> ctypes.Structure:
        candidates = self._candidates
        candidates["id"] = np.arange(len(candidates), dtype=np.int32)
        candidates["logit"] = logits
        return _array(candidates)

    def _choose(self, candidates: ctypes.Structure) -> int:
        _apply(self.chain, ctypes.byref(candidates))
        return int(candidates.data[candidates.selected].id)

    def _allows(self, token: int, logit: float) -> bool:
        if incomplete(self._unfinished + self._pieces[token]) is None:
            return False
        # One candidate alone: the grammar sets its logit to -inf if it forbids the token.
        one = np.array([(token, logit, 0.0)], dtype=_CANDIDATE)
        _apply(self._grammar, ctypes.byref(_array(one)))
        return bool(np.isfinite(one["logit"][0]))

    @override
    def close(self) -> None:
        super().close()
        grammar, self._grammar = self._grammar, None
        if grammar:
            native.llama_sampler_free(grammar)


def _array(candidates: np.ndarray[tuple[int, ...], np.dtype[np.void]]) -> ctypes.Structure:
    """The native view of `candidates`, which must outlive it."""
    pointer = candidates.ctypes.data_as(ctypes.POINTER(native.llama_token_data))
    array: ctypes.Structure = native.llama_token_data_array(pointer, len(candidates), -1, False)
    return array
