"""A model at the edge of the world: generates numbered words on command and counts what it generates."""

import asyncio
from collections.abc import AsyncGenerator

from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_schema import COMMON_FEATURES, TextCompletionRequest


class CountingLlm(LlmService):
    """Answers the prompt "N" with N words, each after `step` allows it."""

    features = COMMON_FEATURES

    def __init__(self, model: str = "counting", options: ProviderOptions | None = None) -> None:
        super().__init__(model, options)
        self.generated = 0
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()
        self.step: asyncio.Semaphore | None = None
        self.requests: list[TextCompletionRequest] = []

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        self.requests.append(request)
        self.started.set()
        try:
            for number in range(int(request.prompt or "0")):
                if self.step is not None:
                    await self.step.acquire()
                self.generated += 1
                yield LlmChunk(text=f"{number} ", out_token=1)
            yield LlmChunk(in_token=7, finish_reason="stop")
        finally:
            self.stopped.set()


class SteppedLlm(CountingLlm):
    """Says a word for each step that it is allowed."""

    step: asyncio.Semaphore

    def __init__(self, model: str = "counting", options: ProviderOptions | None = None, *, steps: int = 0) -> None:
        super().__init__(model, options)
        self.step = asyncio.Semaphore(steps)


def release(step: asyncio.Semaphore | None, times: int) -> None:
    """Allow a model so many steps."""
    assert step is not None
    for _ in range(times):
        step.release()
