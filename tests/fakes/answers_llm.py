"""A model at the edge of the world that gives each of its answers as a test wrote it down."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_schema import COMMON_FEATURES, TextCompletionRequest, TgError

Steps = Sequence[LlmChunk | TgError | asyncio.Event]
"""Chunks to yield, errors to raise, events to wait for."""


class AnswersLlm(LlmService):
    """Request number i, counted from 0, gets answer number i; the last one is repeated.

    Attributes:
        requests: what it was asked.
        running: how many streams are open.
        most: how many were open at the same time.
        sent: how many chunks all of them have given.
    """

    features = COMMON_FEATURES

    def __init__(self, *answers: Steps, options: ProviderOptions | None = None) -> None:
        super().__init__("answers", options)
        self.answers = answers
        self.requests: list[TextCompletionRequest] = []
        self.running = self.most = self.sent = 0

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        steps = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for step in steps:
                await asyncio.sleep(0)
                match step:
                    case asyncio.Event():
                        await step.wait()
                    case TgError():
                        raise step
                    case _:
                        self.sent += 1
                        yield step
        finally:
            self.running -= 1
