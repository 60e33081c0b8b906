"""A model at the edge of the world that takes whatever it is asked, and says "ok": for requests that nobody chose."""

from collections.abc import AsyncGenerator
from typing import Final

from typing_extensions import override

from tests.fakes.byte_llm import make_prompt, make_token
from tg_base.llm import Detokenized, Embeddings, LlmChunk, LlmService, Scores
from tg_schema import ModelInfo, Sampling, TextCompletionRequest
from tg_schema.features import Feature

FEATURES: Final[frozenset[Feature]] = frozenset(
    {
        *("history", "images", "tools", "stop", "seed", "top_p", "top_k", "penalties", "logprobs", "min_p"),
        *("typical_p", "repetition_penalty", "logit_bias", "prompt_logprobs", "raw", "prompt_ids", "suffix", "echo"),
        *("reasoning", "count_tokens", "tokenize", "detokenize", "token_texts", "score", "embed"),
    }
)
"""All but those whose answers the pipeline checks, such as a schema: this model does not obey."""
ANSWER: Final = b"ok"
MAX_ALTERNATIVES: Final = 5
"""Of a token; more may be asked for, and a byte has no more before it."""


class WillingLlm(LlmService):
    """Says `ANSWER`, byte by byte; every operation works."""

    features = FEATURES

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        sampling, prompt = request.sampling or Sampling(), _bytes_of(request)
        asked, known = sampling.logprobs, sampling.prompt_logprobs
        told = () if known is None else make_prompt(prompt, _limit(known))
        yield LlmChunk(prompt.decode("utf-8", "replace") if request.echo else "", prompt_tokens=told)
        said = ANSWER[: sampling.max_tokens]
        for number in said:
            token = make_token(number, None if asked is None else _limit(asked))
            yield LlmChunk(token.text, out_token=1, tokens=() if asked is None else (token,))
        yield LlmChunk(in_token=len(prompt), finish_reason="stop" if said == ANSWER else "length")

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        return len(_bytes_of(request))

    @override
    async def tokenize(self, request: TextCompletionRequest) -> tuple[int, ...]:
        return tuple(_bytes_of(request))

    @override
    async def detokenize(self, request: TextCompletionRequest) -> Detokenized:
        ids = _bytes_of(request)
        return Detokenized(ids.decode("utf-8", "replace"), tuple(make_token(number, None) for number in ids))

    @override
    async def score(self, request: TextCompletionRequest) -> Scores:
        prompt = _bytes_of(request)
        alternatives = request.sampling.prompt_logprobs if request.sampling else 0
        return Scores((), make_prompt(prompt, _limit(alternatives or 0)), len(prompt))

    @override
    async def embed(self, request: TextCompletionRequest) -> Embeddings:
        texts = request.texts or request.id_lists
        return Embeddings(tuple((float(len(text)), 1.0) for text in texts), len(texts))

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        return (ModelInfo(self.model, context_length=4096),)


def _limit(alternatives: int) -> int:
    return min(alternatives, MAX_ALTERNATIVES)


def _bytes_of(request: TextCompletionRequest) -> bytes:
    """Never empty: a model's template says something for every conversation."""
    ids = bytes(number % 256 for number in request.prompt_ids)
    return ids or "".join(request.texts).encode() or (request.prompt or "").encode("utf-8", "replace") or b"?"
