"""A request's sampling -> settings of a sampler, and what logits say of a token."""

from tg_llama.sampling.logit_bias import LogitBias, logprobs
from tg_llama.sampling.sampler_settings import SamplerSettings

__all__ = ["LogitBias", "SamplerSettings", "logprobs"]
