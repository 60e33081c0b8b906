"""A model at the edge of the world that says one written turn after the other, as an agent's model does."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService
from tg_schema import COMMON_FEATURES, FinishReason, TextCompletionRequest, TgError, ToolCallDelta
from tg_schema.features import Feature

Turn = Sequence[str | ToolCallDelta | LlmChunk | TgError | asyncio.Event]
"""Pieces of text or calls; an error is raised, an event is waited for."""

TEXT_ONLY: frozenset[Feature] = COMMON_FEATURES - {"tools"}


class TurnsLlm(LlmService):
    """Turn after turn; each costs 10 prompt tokens, and an answer token a piece. The last one is repeated."""

    def __init__(self, *turns: Turn, features: frozenset[Feature] = TEXT_ONLY, model: str = "turns") -> None:
        super().__init__(model)
        self.features = features
        self.turns = turns
        self.requests: list[TextCompletionRequest] = []
        self.stopped = asyncio.Event()
        self.running = 0

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        turn = self.turns[min(len(self.requests), len(self.turns) - 1)]
        self.requests.append(request)
        reason: FinishReason = "stop"
        self.running += 1
        try:
            for piece in turn:
                match piece:
                    case str():
                        yield LlmChunk(piece, out_token=1)
                    case ToolCallDelta():
                        reason = "tool_calls"
                        yield LlmChunk(out_token=1, tool_calls=(piece,))
                    case LlmChunk():
                        yield piece
                    case asyncio.Event():
                        await piece.wait()
                    case TgError():
                        raise piece
            yield LlmChunk(in_token=10, finish_reason=reason)
        finally:
            self.running -= 1
            self.stopped.set()
