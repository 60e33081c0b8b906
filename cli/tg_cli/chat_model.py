"""What a chat asks: the model, where it is, and how it samples."""

from dataclasses import dataclass

from tg_schema import Sampling


@dataclass(slots=True)
class ChatModel:
    """Which model is asked, and how; /model changes it. `model` and `flow` may be None: the gateway chooses then."""

    model: str | None
    flow: str | None
    sampling: Sampling | None
