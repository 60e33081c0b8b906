"""Records of an answer -> its token usage, in OpenAI's shape."""

import msgspec

from tg_schema import TextCompletionResponse


class PromptTokensDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """Parts of the prompt's tokens; what is unknown is left out."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class CompletionTokensDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """Parts of the answer's tokens; what is unknown is left out."""

    reasoning_tokens: int | None = None


class CompletionUsage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The token counts of all choices together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


class UsageTotals:
    """Adds up what records count."""

    __slots__ = ("_cache_write", "_cached", "_in", "_out", "_reasoning")

    def __init__(self) -> None:
        self._in: int | None = None
        self._out: int | None = None
        self._cached: int | None = None
        self._cache_write: int | None = None
        self._reasoning: int | None = None

    def add(self, record: TextCompletionResponse) -> None:
        """Add a record's counts, which are deltas."""
        if record.in_token is not None:
            self._in = (self._in or 0) + record.in_token
        if record.out_token is not None:
            self._out = (self._out or 0) + record.out_token
        if record.cached_token is not None:
            self._cached = (self._cached or 0) + record.cached_token
        if record.cache_write_token is not None:
            self._cache_write = (self._cache_write or 0) + record.cache_write_token
        if record.reasoning_token is not None:
            self._reasoning = (self._reasoning or 0) + record.reasoning_token

    def usage(self) -> CompletionUsage | None:
        """The sums; None if the provider has told none."""
        if self._in is None and self._out is None:
            return None
        prompt, completion = self._in or 0, self._out or 0
        told = self._cached is not None or self._cache_write is not None
        return CompletionUsage(
            prompt,
            completion,
            prompt + completion,
            PromptTokensDetails(self._cached, self._cache_write) if told else None,
            CompletionTokensDetails(self._reasoning) if self._reasoning is not None else None,
        )
