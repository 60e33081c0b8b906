"""The demo model in NumPy: file -> vocabulary, weights and what samples their logits."""

from tg_llama.demo.demo_model import DemoModel

__all__ = ["DemoModel"]
