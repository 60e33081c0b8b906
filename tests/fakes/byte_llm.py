"""A model at the edge of the world whose tokens are bytes: it says its prompt in capitals, and knows all operations."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tg_base.llm import Detokenized, Embeddings, LlmChunk, Scores
from tg_schema import COMMON_FEATURES, ModelInfo, Sampling, TextCompletionRequest, Token
from tg_schema.errors import Unavailable
from tg_schema.features import Feature

CONTEXT_TOKENS: Final = 4096
_FEATURES: Final[frozenset[Feature]] = frozenset(
    {
        *("raw", "prompt_ids", "echo", "suffix", "prompt_logprobs", "score"),
        *("tokenize", "detokenize", "token_texts", "embed", "embed_ids"),
    }
)


class ByteLlm(CountingLlm):
    """Says the prompt in capitals, again and again, up to `max_tokens`; after "!" it fails.

    Attributes:
        gates: by the prompt: what each token of its answers waits for.
        running: answers that are being made.
        most: how many have been at the same time.
    """

    features = COMMON_FEATURES | _FEATURES

    def __init__(self, model: str = "counting") -> None:
        super().__init__(model)
        self.tries = 1
        self.gates: dict[str, asyncio.Semaphore] = {}
        self.running = self.most = 0

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        self.requests.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            sampling = request.sampling or Sampling()
            prompt = _bytes_of(request)
            yield self._prompt(request, prompt, sampling)
            gate = self.gates.get(prompt.decode(), self.step)
            said = prompt + (request.suffix or "").encode()
            for number in range(sampling.max_tokens or 4):
                if gate is not None:
                    await gate.acquire()
                await asyncio.sleep(0)
                token = make_token(said[number % len(said) :][:1].upper()[0], sampling.logprobs)
                if token.text == "!":
                    raise Unavailable("the provider is down")
                self.generated += 1
                yield LlmChunk(token.text, out_token=1, tokens=() if sampling.logprobs is None else (token,))
            yield LlmChunk(in_token=len(prompt), finish_reason="length")
        finally:
            self.running -= 1
            self.stopped.set()

    def _prompt(self, request: TextCompletionRequest, prompt: bytes, sampling: Sampling) -> LlmChunk:
        text = prompt.decode() if request.echo else ""
        if sampling.prompt_logprobs is None:
            return LlmChunk(text)
        return LlmChunk(text, prompt_tokens=make_prompt(prompt, sampling.prompt_logprobs))

    @override
    async def tokenize(self, request: TextCompletionRequest) -> tuple[int, ...]:
        self.requests.append(request)
        begin = () if request.texts else (1,)
        return (*begin, *("".join(request.texts) or request.prompt or "").encode())

    @override
    async def detokenize(self, request: TextCompletionRequest) -> Detokenized:
        ids = bytes(request.prompt_ids)
        return Detokenized(ids.decode("utf-8", "replace"), tuple(make_token(number, None) for number in ids))

    @override
    async def score(self, request: TextCompletionRequest) -> Scores:
        self.requests.append(request)
        prompt = _bytes_of(request)
        alternatives = request.sampling.prompt_logprobs if request.sampling else 0
        return Scores((), make_prompt(prompt, alternatives or 0), len(prompt))

    @override
    async def embed(self, request: TextCompletionRequest) -> Embeddings:
        """How often a, b and c are in each text."""
        self.requests.append(request)
        texts = request.texts or tuple(bytes(ids).decode() for ids in request.id_lists)
        return Embeddings(tuple(count_letters(text) for text in texts), sum(map(len, texts)))

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        return (ModelInfo(self.model, context_length=CONTEXT_TOKENS),)


def make_token(number: int, alternatives: int | None) -> Token:
    """A byte as a token; its alternatives are the bytes before it."""
    tops = [(number - step, -0.5 - step) for step in range(alternatives or 0)]
    text = bytes([number]).decode("utf-8", "replace")
    raw = None if number < 128 else bytes([number])
    texts = tuple(chr(top) for top, _ in tops)
    return Token(number, text, None if alternatives is None else -0.5, tuple(tops), texts, raw)


def make_prompt(prompt: bytes, alternatives: int) -> tuple[Token, ...]:
    """The tokens of a prompt; the first one has no probability."""
    first, *others = prompt
    return (make_token(first, None), *(make_token(number, alternatives) for number in others))


def count_letters(text: str) -> tuple[float, ...]:
    """How often a, b and c are in it."""
    return tuple(float(text.count(letter)) for letter in "abc")


def _bytes_of(request: TextCompletionRequest) -> bytes:
    ids: Sequence[int] = request.prompt_ids or (request.prompt or "").encode()
    return bytes(ids)
