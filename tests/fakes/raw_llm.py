"""A model at the edge of the world that takes raw text, tells its tokens, and has all that TGI's clients ask for."""

from collections.abc import AsyncGenerator

import msgspec
from typing_extensions import override

from tg_base.llm import Detokenized, LlmChunk, LlmService
from tg_schema import COMMON_FEATURES, FinishReason, Sampling, TextCompletionRequest, Token
from tg_schema.errors import IncompleteStream, RateLimited, Unavailable
from tg_schema.features import Feature

FEATURES: frozenset[Feature] = COMMON_FEATURES | {
    *("raw", "keep_stop", "prompt_logprobs", "end_token", "typical_p", "repetition_penalty", "regex", "adapter"),
    *("tokenize", "token_texts"),
}
TOKENS = (
    Token(10, "Hel", -0.1),
    Token(11, "lo", -0.2),
    Token(12, " ", -0.3),
    Token(20, "\ufffd", -0.4, raw_bytes=b"\xe2\x82"),
    Token(21, "\ufffd", -0.5, raw_bytes=b"\xac"),
)
END = Token(2, "</s>", -0.6, special=True)
ERRORS = {
    "down": Unavailable("the provider is down"),
    "busy": RateLimited("ask later", retry_after=1),
    "cut": IncompleteStream("the provider's stream was cut"),
}


class RawLlm(LlmService):
    """Answers with `TOKENS`, "Hello €"; the prompts of `ERRORS` fail, "cut" after the first token.

    Every further answer of a process has less probable tokens. A word of a prompt is a token.
    """

    def __init__(self, model: str = "counting", *, features: frozenset[Feature] = FEATURES) -> None:
        super().__init__(model)
        self.features = features | {"n", "best_of"}
        self.native_features = features
        self.tries = 1
        self.requests: list[TextCompletionRequest] = []

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        self.requests.append(request)
        sampling = request.sampling or Sampling()
        prompt = request.prompt or ""
        error = ERRORS.get(prompt)
        if error is not None and prompt != "cut":
            raise error
        if sampling.prompt_logprobs is not None:
            yield LlmChunk(prompt_tokens=tuple(_words(prompt)))
        text, seen, stopped = b"", "", None
        for token in TOKENS[: sampling.max_tokens]:
            text += token.text.encode() if token.raw_bytes is None else token.raw_bytes
            shown = text.decode(errors="ignore")
            yield LlmChunk(shown.removeprefix(seen), out_token=1, tokens=self._tell(token, sampling))
            seen = shown
            if error is not None:
                raise error
            stopped = next((stop for stop in sampling.stop if seen.endswith(stop)), None)
            if stopped is not None:
                break
        length = len(seen.encode()) < len(b"Hello \xe2\x82\xac") and stopped is None
        if sampling.end_token and stopped is None and not length:
            yield LlmChunk(tokens=(END,))
        reason: FinishReason = "length" if length else "stop"
        seed = sampling.seed if sampling.temperature else None
        yield LlmChunk(in_token=len(prompt.split()), finish_reason=reason, stopped_by=stopped, seed=seed)

    def _tell(self, token: Token, sampling: Sampling) -> tuple[Token, ...]:
        if sampling.logprobs is None:
            return ()
        logprob = (token.logprob or 0) - 0.01 * (len(self.requests) - 1)
        tops = tuple((token.id + 100 * rank, logprob - rank) for rank in range(sampling.logprobs))
        texts = tuple(f"{token.text}{rank}" for rank in range(sampling.logprobs))
        return (msgspec.structs.replace(token, logprob=round(logprob, 4), top=tops, top_texts=texts),)

    @override
    async def tokenize(self, request: TextCompletionRequest) -> tuple[int, ...]:
        self.requests.append(request)
        return tuple(token.id for token in _words(_prompt_of(request)))

    @override
    async def detokenize(self, request: TextCompletionRequest) -> Detokenized:
        tokens = tuple(_words(_prompt_of(self.requests[-1])))
        return Detokenized("".join(token.text for token in tokens), tokens)


def _prompt_of(request: TextCompletionRequest) -> str:
    return request.prompt or "".join(request.texts) if request.raw or request.texts else f"<user>{request.prompt}"


def _words(prompt: str) -> list[Token]:
    """The begin token, then word by word, each with the space before it."""
    words = [f" {word}" if number else word for number, word in enumerate(prompt.split(" "))]
    tokens = [Token(30 + number, word, -1.0 - number) for number, word in enumerate(words)]
    return [Token(1, "<s>", special=True), *tokens]
