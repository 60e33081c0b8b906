"""llama.cpp -> Python: models, contexts, samplers and adapters."""

from tg_llama.native.model import Model
from tg_llama.native.model_load import ModelLoad

__all__ = ["Model", "ModelLoad"]
