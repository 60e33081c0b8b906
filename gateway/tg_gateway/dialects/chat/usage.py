"""Records of an answer -> its token usage, in OpenAI's shape."""

import msgspec

from tg_schema import TextCompletionResponse
from tg_schema.deltas import add_count


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
        self._in = add_count(self._in, record.in_token)
        self._out = add_count(self._out, record.out_token)
        self._cached = add_count(self._cached, record.cached_token)
        self._cache_write = add_count(self._cache_write, record.cache_write_token)
        self._reasoning = add_count(self._reasoning, record.reasoning_token)

    def usage(self) -> CompletionUsage | None:
        """The sums; None if the provider has told none."""
        if self._in is None and self._out is None:
            return None
        prompt, completion = self._in or 0, self._out or 0
        has_details = self._cached is not None or self._cache_write is not None
        return CompletionUsage(
            prompt,
            completion,
            prompt + completion,
            PromptTokensDetails(self._cached, self._cache_write) if has_details else None,
            CompletionTokensDetails(self._reasoning) if self._reasoning is not None else None,
        )
