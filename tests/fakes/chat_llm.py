"""A model at the edge of the world for the door of OpenAI's clients: written turns, and every common feature."""

from typing import Final

from tests.fakes.turns_llm import Turn, TurnsLlm
from tg_schema import COMMON_FEATURES, TextCompletionRequest
from tg_schema.features import Feature

ABLE: Final[frozenset[Feature]] = COMMON_FEATURES | {"n", "reasoning", "strict_tools", "parallel_tool_calls"}


class ChatLlm(TurnsLlm):
    """Turn after turn, as `TurnsLlm`, under the name that `open_gateway` gives its model."""

    def __init__(self, *turns: Turn, features: frozenset[Feature] = ABLE) -> None:
        super().__init__(*turns, features=features | {"developer", "reasoning_turns"})
        self.model = "counting"
        self.tries = 1

    @property
    def asked(self) -> TextCompletionRequest:
        """The last request."""
        return self.requests[-1]
