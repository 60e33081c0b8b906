"""vLLM's API of LoRA adapters: loaded and unloaded while the model is served."""

from tg_gateway.dialects.adapters.dialect import MOUNTS

__all__ = ["MOUNTS"]
