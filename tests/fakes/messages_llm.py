"""A model at the edge of the world for the door of Anthropic's clients: written turns, and counts of tokens."""

from typing import Final

import msgspec
from typing_extensions import override

from tests.fakes.turns_llm import Turn, TurnsLlm
from tg_schema import COMMON_FEATURES, TextCompletionRequest
from tg_schema.features import Feature

PLAIN: Final[frozenset[Feature]] = COMMON_FEATURES | {"count_tokens"}
"""What a model of another vendor has."""
CLAUDE: Final[frozenset[Feature]] = PLAIN | {"reasoning", "parallel_tool_calls", "strict_tools", "anthropic_fields"}
"""What Claude has."""
COUNTED: Final = 42
"""Tokens of every request."""


class MessagesLlm(TurnsLlm):
    """Turn after turn, as `TurnsLlm`, under the name that `open_gateway` gives its model."""

    def __init__(self, *turns: Turn, features: frozenset[Feature] = CLAUDE) -> None:
        super().__init__(*turns, features=features | {"developer", "reasoning_turns"})
        self.model = "counting"

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        self.requests.append(request)
        return COUNTED

    @property
    def asked(self) -> TextCompletionRequest:
        """The last request, without the name of the model."""
        return msgspec.structs.replace(self.requests[-1], model=None)
