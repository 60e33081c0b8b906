"""A model that never stops: what fills memory where nothing bounds what is gathered."""

import asyncio
from collections.abc import AsyncGenerator

from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService
from tg_schema import COMMON_FEATURES, TextCompletionRequest, ToolCallDelta


class EndlessLlm(LlmService):
    """Says `chunk` for ever; `stopped` is set when it is left."""

    features = COMMON_FEATURES

    def __init__(self, chunk: LlmChunk | None = None) -> None:
        super().__init__("endless")
        self.chunk = chunk or LlmChunk("all work and no play " * 200)
        self.stopped = asyncio.Event()

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        try:
            while True:
                yield self.chunk
                await asyncio.sleep(0)
        finally:
            self.stopped.set()


WORDS = LlmChunk("all work and no play " * 200)
THOUGHTS = LlmChunk(reasoning="hm " * 1000)
CALLS = LlmChunk(tool_calls=(ToolCallDelta(0, arguments="x" * 4000),))
