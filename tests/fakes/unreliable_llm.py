"""A model at the edge of the world that speaks, pauses, floods and fails on command, and counts what it generates."""

import asyncio
from collections.abc import AsyncGenerator

from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.wordy_llm import WORD
from tg_base.llm import LlmChunk
from tg_schema import TextCompletionRequest, TgError

MANY = 100
"""Words beyond which each has 4 KiB."""


class UnreliableLlm(CountingLlm):
    """Answers the prompt "N" with N words. It is asked once for each request.

    Attributes:
        error: raised after the words; None = the answer is whole.
        go: while it is cleared, nothing follows the words.
        pace: seconds before each word but the first.
        silent: whether nothing is ever said.
        spoke: set with the first word.
    """

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.tries = 1
        self.error: TgError | None = None
        self.go = asyncio.Event()
        self.go.set()
        self.pace = 0.0
        self.silent = False
        self.spoke = asyncio.Event()

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        words = int(request.prompt or "0")
        self.requests.append(request)
        self.started.set()
        try:
            if self.silent:
                await asyncio.Event().wait()
            for number in range(words):
                if number:
                    await asyncio.sleep(self.pace)
                self.generated += 1
                self.spoke.set()
                yield LlmChunk(WORD if words > MANY and not self.pace else f"{number} ", out_token=1)
            await self.go.wait()
            if self.error is not None:
                raise self.error
            yield LlmChunk(in_token=7, finish_reason="stop")
        finally:
            self.stopped.set()

    def forget(self) -> None:
        """Behave, and know of no request."""
        self.error, self.pace, self.silent, self.generated = None, 0.0, False, 0
        self.go.set()
        for event in (self.started, self.spoke, self.stopped):
            event.clear()
