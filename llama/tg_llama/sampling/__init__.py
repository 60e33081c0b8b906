"""Logits and a request's settings -> token."""

from tg_llama.sampling.logit_bias import logprobs
from tg_llama.sampling.sampler import GrammarSampler, Sampler
from tg_llama.sampling.sampler_settings import SamplerSettings

__all__ = ["GrammarSampler", "Sampler", "SamplerSettings", "logprobs"]
