"""The demo model in NumPy: its file, vocabulary, weights and sampler."""

from tg_llama.demo.demo_model import DemoModel

__all__ = ["DemoModel"]
