"""Records of an answer -> its usage and stop reason, in Anthropic's form.

`input_tokens` leaves out what was read from a cache or written to it; ours includes both.
"""

from typing import assert_never

import msgspec

from tg_schema import FinishReason, TextCompletionResponse
from tg_schema import Usage as Tokens
from tg_schema.completion import UNCOUNTED, counts_of


class OutputDetails(msgspec.Struct, frozen=True):
    """Parts of `output_tokens`."""

    thinking_tokens: int


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens so far; None = unknown."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None


class Tally:
    """What the records of one answer add up to.

    Attributes:
        model: the name of the model that answers; "" = not known yet.
        called: whether the model calls a tool.
    """

    def __init__(self) -> None:
        self.model = ""
        self.called = False
        self._total = Tokens()
        self._finish_reason: FinishReason | None = None
        self._stopped_by: str | int | None = None

    def add(self, record: TextCompletionResponse) -> None:
        """Add a record; its counts are deltas."""
        self.model = record.model or self.model
        self.called = self.called or bool(record.tool_calls)
        if counts_of(record) != UNCOUNTED:
            self._total += record.usage
        self._finish_reason = record.finish_reason or self._finish_reason
        self._stopped_by = record.stopped_by if record.stopped_by is not None else self._stopped_by

    @property
    def usage(self) -> Usage:
        """All tokens so far."""
        # Counts of providers need not agree with each other, and no count is negative.
        total = self._total
        fresh = max(0, (total.in_token or 0) - (total.cached_token or 0) - (total.cache_write_token or 0))
        details = None if total.reasoning_token is None else OutputDetails(total.reasoning_token)
        return Usage(fresh, total.out_token or 0, total.cache_write_token, total.cached_token, details)

    @property
    def stop_sequence(self) -> str | None:
        """The text that ended the answer, if the provider says so."""
        return self._stopped_by if isinstance(self._stopped_by, str) else None

    @property
    def stop_reason(self) -> str:
        """Why the answer ended."""
        match self._finish_reason:
            case "length":
                return "max_tokens"
            case "content_filter":
                return "refusal"
            case "stop" | "tool_calls" | None:
                ended = "tool_use" if self.called else "end_turn"
                return ended if self.stop_sequence is None else "stop_sequence"
            case _:
                assert_never(self._finish_reason)
