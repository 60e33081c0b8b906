"""GGUF models in the process for Tokengrid, by llama.cpp."""

from tg_llama.options import LlamaCppOptions
from tg_llama.provider import LlamaCpp

__all__ = ["LlamaCpp", "LlamaCppOptions"]
