"""Logits and a request's settings -> token."""

from tg_llama.sampling.grammar_sampler import GrammarSampler
from tg_llama.sampling.logprobs import logprobs
from tg_llama.sampling.sampler import Sampler
from tg_llama.sampling.sampler_settings import SamplerSettings

__all__ = ["GrammarSampler", "Sampler", "SamplerSettings", "logprobs"]
