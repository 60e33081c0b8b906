"""Logits -> token: one chain of llama.cpp's samplers for each stream."""

from collections.abc import Sequence

from tg_llama.core import Context, Model, hold_interpreter_lock, native
from tg_llama.sampling.sampler_settings import SamplerSettings

_sample = hold_interpreter_lock(native.llama_sampler_sample)
_accept = hold_interpreter_lock(native.llama_sampler_accept)


class Sampler:
    """Belongs to the engine's thread.

    The presence and frequency penalties count only the answer's tokens, the repetition penalty the prompt's too.
    """

    def __init__(self, model: Model, settings: SamplerSettings, longest: int, prompt: Sequence[int] = ()) -> None:
        """For answers of at most `longest` tokens, for which penalties allocate memory at once."""
        self.chain = native.llama_sampler_chain_init(native.llama_sampler_chain_default_params())
        if settings.logit_bias:
            self._add(settings.logit_bias.sampler(model.vocabulary))
        if settings.repetition_penalty != 1:
            self._add(_repetition_penalty(model, settings.repetition_penalty, longest, prompt))
        if settings.presence_penalty or settings.frequency_penalty:
            self._add(
                native.llama_sampler_init_penalties(
                    model.vocabulary, longest, 1.0, settings.frequency_penalty, settings.presence_penalty
                )
            )
        # One token is left; the chain would sort the whole vocabulary to find it.
        if settings.is_greedy:
            self._add(native.llama_sampler_init_greedy())
            return
        # In llama.cpp's usual order: each chooses among what the one before has left.
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

    def close(self) -> None:
        """Free the chain; the sampler must not be used afterwards."""
        chain, self.chain = self.chain, None
        if chain:
            native.llama_sampler_free(chain)


def _repetition_penalty(model: Model, penalty: float, longest: int, prompt: Sequence[int]) -> object:
    sampler = native.llama_sampler_init_penalties(model.vocabulary, len(prompt) + longest, penalty, 0.0, 0.0)
    for token in prompt:
        _accept(sampler, token)
    return sampler
