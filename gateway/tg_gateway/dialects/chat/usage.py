"""Records of an answer -> its token usage, in OpenAI's shape."""

import msgspec

from tg_schema import TextCompletionResponse, Usage
from tg_schema.completion import UNCOUNTED, counts_of


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


def add_usage(total: Usage, record: TextCompletionResponse) -> Usage:
    """The total with a record's counts, which are deltas."""
    return total if counts_of(record) == UNCOUNTED else total + record.usage


def describe_usage(total: Usage) -> CompletionUsage | None:
    """The sums in OpenAI's shape; None if the provider reported none."""
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
