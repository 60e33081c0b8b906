"""llama.cpp -> Python: model, context, an adapter's weights, and the way back to the event loop."""

from tg_llama.core.adapter import Adapter
from tg_llama.core.context import Context, State
from tg_llama.core.engine_sizes import EngineSizes
from tg_llama.core.library import hold_interpreter_lock, native
from tg_llama.core.mailbox import Mailbox
from tg_llama.core.model import Model, OwnPooling
from tg_llama.core.model_file import model_file
from tg_llama.core.model_load import ModelLoad
from tg_llama.core.token_data import Alternatives, token_data

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
