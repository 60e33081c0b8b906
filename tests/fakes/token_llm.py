"""A model at the edge of the world whose tokens are bytes: it says the prompt again, and its end token, 256."""

import asyncio
from collections.abc import AsyncGenerator

from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tg_base.llm import LlmChunk, Scores
from tg_schema import Sampling, TextCompletionRequest, Token
from tg_schema.features import COMMON_FEATURES

END = 256


class TokenLlm(CountingLlm):
    """Each token's log-probability is minus its id over 256, and that of the next id below is told as the alternative.

    A prompt of turns or of raw text is its bytes. A 0 in it is left out.
    """

    features = (COMMON_FEATURES - {"images", "tools"}) | {
        *("prompt_ids", "end_token", "score", "logit_bias", "raw", "min_p", "repetition_penalty", "length_penalty")
    }

    failing: tuple[Exception, ...] = ()
    """What the next requests fail with, each with the first of them, before any token, when it may step."""

    async def say_failed(self) -> None:
        """Fail so."""
        if self.step is not None:
            await self.step.acquire()
        failure, *rest = self.failing
        self.failing = tuple(rest)
        raise failure

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        self.requests.append(request)
        self.started.set()
        sampling = request.sampling or Sampling()
        ids = request.prompt_ids or tuple((request.prompt or "").encode())
        most = sampling.max_tokens or len(ids)
        told: list[int] = []
        try:
            if self.failing:
                await self.say_failed()
            for number in [each for each in ids if each][:most]:
                if self.step is not None:
                    await self.step.acquire()
                await asyncio.sleep(0)
                self.generated += 1
                told.append(number)
                yield _chunk(number, sampling)
            ended = len(told) < most
            if ended and sampling.end_token:
                yield _chunk(END, sampling)
            yield LlmChunk(in_token=len(ids), finish_reason="stop" if ended else "length")
        finally:
            self.stopped.set()

    @override
    async def score(self, request: TextCompletionRequest) -> Scores:
        self.requests.append(request)
        return Scores(tuple(make_token(number, 0) for number in request.scored))


def make_token(number: int, alternatives: int) -> Token:
    """Its data, as the model tells it."""
    top = ((number - 1, -(number - 1) / 256),) if alternatives else ()
    text = "" if number == END else chr(number)
    return Token(number, text, -number / 256, top=top, special=number == END)


def _chunk(number: int, sampling: Sampling) -> LlmChunk:
    tokens = () if sampling.logprobs is None else (make_token(number, sampling.logprobs),)
    if number == END:
        return LlmChunk(tokens=tokens)
    return LlmChunk(chr(number), out_token=1, tokens=tokens)
