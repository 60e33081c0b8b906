"""llama.cpp -> Python: its models, what evaluates them, and an adapter's weights."""

from tg_llama.native.model import Model
from tg_llama.native.model_load import ModelLoad

__all__ = ["Model", "ModelLoad"]
