"""Records of an answer -> its token usage, in OpenAI's shape."""

import msgspec

from tg_schema import TextCompletionResponse, Usage
from tg_schema.completion import UNCOUNTED, counts_of

_NOTHING = Usage()


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

    __slots__ = ("_total",)

    def __init__(self) -> None:
        self._total = _NOTHING

    def add(self, record: TextCompletionResponse) -> None:
        """Add a record's counts, which are deltas."""
        if counts_of(record) != UNCOUNTED:
            self._total += record.usage

    def usage(self) -> CompletionUsage | None:
        """The sums; None if the provider reported none."""
        total = self._total
        if total.in_token is None and total.out_token is None:
            return None
        prompt, completion = total.in_token or 0, total.out_token or 0
        has_details = total.cached_token is not None or total.cache_write_token is not None
        return CompletionUsage(
            prompt,
            completion,
            prompt + completion,
            PromptTokensDetails(total.cached_token, total.cache_write_token) if has_details else None,
            CompletionTokensDetails(total.reasoning_token) if total.reasoning_token is not None else None,
        )
