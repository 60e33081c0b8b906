"""The packaged model, which both providers of this package can run."""

from tg_llama.models.demo_file import DEMO_MODEL

__all__ = ["DEMO_MODEL"]
