"""What the parts of an engine share: the interface of a model, and its sampler's settings."""

from tg_llama.core.interface import (
    CONTROL_TOKEN,
    Adapter,
    Context,
    EngineSizes,
    Floats,
    Model,
    OwnPooling,
    Sampler,
    State,
    VectorContext,
)
from tg_llama.core.logit_bias import LogitBias, logprobs
from tg_llama.core.model_file import model_file
from tg_llama.core.sampler_settings import SamplerSettings
from tg_llama.core.token_data import Alternatives, token_data

__all__ = [
    "CONTROL_TOKEN",
    "Adapter",
    "Alternatives",
    "Context",
    "EngineSizes",
    "Floats",
    "LogitBias",
    "Model",
    "OwnPooling",
    "Sampler",
    "SamplerSettings",
    "State",
    "VectorContext",
    "logprobs",
    "model_file",
    "token_data",
]
