"""The demo model in NumPy: file -> vocabulary and weights -> a thread that writes all answers side by side."""

from tg_llama.demo.demo_engine import SLOTS, DemoEngine
from tg_llama.demo.demo_model import DemoModel
from tg_llama.demo.token_choice import Preferences
from tg_llama.demo.writing import Task, Writing

__all__ = ["SLOTS", "DemoEngine", "DemoModel", "Preferences", "Task", "Writing"]
