"""Text completion: one prompt in, one answer out, whole or in chunks (seed, phase 1)."""

from collections.abc import Sequence
from typing import Any, Self

import msgspec

from tg_schema.deltas import added, joined_text
from tg_schema.errors import Error


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the next token is chosen and when to stop; None = the provider's default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: int | None = None
    """How many alternatives to report for each token; 0 = the chosen token's alone; None = no token data."""


class Token(msgspec.Struct, frozen=True):
    """One generated token. `logprob` is natural-log probability; `top` pairs token ids with theirs."""

    id: int
    text: str
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class TextCompletionRequest(msgspec.Struct, frozen=True):
    """Seed: `system`, `prompt`, `streaming`. The rest is optional and absent on a plain peer's request."""

    system: str | None = None
    prompt: str | None = None
    streaming: bool | None = False
    model: str | None = None
    sampling: Sampling | None = None
    response_format: str | None = None
    """None or "json"."""
    schema: dict[str, Any] | None = None
    """JSON schema that the answer must satisfy."""


class TextCompletionResponse(msgspec.Struct, frozen=True):
    """Seed: `error` to `end_of_stream`. Token counts are deltas; a whole stream's usage stands on the last record."""

    error: Error | None = None
    response: str | None = None
    in_token: int | None = None
    out_token: int | None = None
    model: str | None = None
    end_of_stream: bool | None = False
    finish_reason: str | None = None
    """"stop", "length" or "content_filter", on the last record."""
    reasoning: str | None = None
    """The model's thinking, where a provider tells it apart from the answer."""
    tokens: tuple[Token, ...] = ()

    @property
    def last(self) -> bool:
        """Whether the stream ends here."""
        return bool(self.end_of_stream) or self.error is not None

    @classmethod
    def failed(cls, error: Error) -> Self:
        """The last record of a failed stream."""
        return cls(error=error, end_of_stream=True)

    @classmethod
    def joined(cls, records: Sequence[Self]) -> Sequence[Self]:
        """One record with the text of all, counts added, all else from the last; an error stays apart."""
        if len(records) < 2:
            return records
        final = records[-1]
        if final.error is not None:
            return (*cls.joined(records[:-1]), final)
        return (
            cls(
                response=joined_text(record.response for record in records),
                in_token=added(record.in_token for record in records),
                out_token=added(record.out_token for record in records),
                model=final.model or records[0].model,
                end_of_stream=final.end_of_stream,
                finish_reason=final.finish_reason,
                reasoning=joined_text(record.reasoning for record in records),
                tokens=tuple(token for record in records for token in record.tokens),
            ),
        )
