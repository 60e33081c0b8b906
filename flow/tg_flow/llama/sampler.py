"""Logits -> token: one chain of llama.cpp's samplers for each stream."""

from tg_flow.llama.context import Context
from tg_flow.llama.library import hold_interpreter_lock, native
from tg_flow.llama.model import Model
from tg_flow.llama.sampler_settings import SamplerSettings

_sample = hold_interpreter_lock(native.llama_sampler_sample)


class Sampler:
    """Belongs to the engine's thread. Penalties count only the answer's tokens."""

    def __init__(self, model: Model, settings: SamplerSettings, longest: int) -> None:
        """For answers of at most `longest` tokens, for which penalties allocate memory at once."""
        self.chain = native.llama_sampler_chain_init(native.llama_sampler_chain_default_params())
        if settings.presence_penalty or settings.frequency_penalty:
            self._add(
                native.llama_sampler_init_penalties(
                    model.vocabulary, longest, 1.0, settings.frequency_penalty, settings.presence_penalty
                )
            )
        if settings.temperature == 0 or settings.top_p == 0 or settings.top_k == 1:
            self._add(native.llama_sampler_init_greedy())
            return
        if settings.top_k:
            self._add(native.llama_sampler_init_top_k(settings.top_k))
        if settings.top_p < 1:
            self._add(native.llama_sampler_init_top_p(settings.top_p, 1))
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
