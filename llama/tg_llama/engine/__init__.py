"""Continuous batching: one model, one context, one owner thread, many streams."""

from tg_llama.engine.engine import CUT_ADVICE, Engine
from tg_llama.engine.engine_pool import EnginePool
from tg_llama.engine.generation import Begin, Ending, Generation, Job, read_answer

__all__ = ["CUT_ADVICE", "Begin", "Ending", "Engine", "EnginePool", "Generation", "Job", "read_answer"]
