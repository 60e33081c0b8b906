"""llama.cpp -> Python: model, context, an adapter's weights, and the way back to the event loop."""

from tg_llama.core.context import Context, EngineSizes, State
from tg_llama.core.library import hold_interpreter_lock, native
from tg_llama.core.mailbox import Mailbox
from tg_llama.core.model import Adapter, Alternatives, Model, OwnPooling, token_data
from tg_llama.core.model_file import model_file
from tg_llama.core.model_load import ModelLoad

__all__ = [
    "Adapter",
    "Alternatives",
    "Context",
    "EngineSizes",
    "Mailbox",
    "Model",
    "ModelLoad",
    "OwnPooling",
    "State",
    "hold_interpreter_lock",
    "model_file",
    "native",
    "token_data",
]
