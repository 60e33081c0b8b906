"""The fields of a model's answer besides its text, shared by a provider's chunk and a record on the bus."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from tg_schema.conversation import ToolCallDelta, whole_calls
from tg_schema.deltas import Count, add_counts, join_text


class Token(msgspec.Struct, frozen=True):
    """One generated token. `logprob` is its natural-log probability; `top` has (token id, logprob) of alternatives."""

    id: int
    text: str
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an answer. Each derived record declares the text under its own name.

    Attributes:
        in_token: prompt tokens not counted before; None = unknown, 0 = counted as zero.
        out_token: answer tokens not counted before; None = unknown.
        model: the name of the model that answers.
        finish_reason: "stop", "length", "tool_calls" or "content_filter"; set once, at the end of the answer.
        reasoning: new thinking text, if the provider separates it from the answer.
        tokens: ids and log-probabilities of the tokens in the new text, if requested and known.
        tool_calls: new pieces of the model's tool calls.
        cached_token: the part of `in_token` from the provider's cache; None = unknown.
        reasoning_token: the part of `out_token` spent on thinking; None = unknown.
    """

    # Ordered by frequency: msgspec encodes and decodes leading fields fastest, and this record is made for each chunk.
    model: str | None = None
    reasoning: str | None = None
    tokens: tuple[Token, ...] = ()
    tool_calls: tuple[ToolCallDelta, ...] = ()
    finish_reason: str | None = None
    in_token: Count | None = None
    out_token: Count | None = None
    cached_token: Count | None = None
    reasoning_token: Count | None = None


Joined = TypeVar("Joined", bound=Completion)


def join_completions(whole: Joined, pieces: Sequence[Completion]) -> Joined:
    """`whole`, which has the joined text, with the other fields of all pieces.

    Counts are summed, thinking and tokens are concatenated, and the pieces of a call are merged. The last model and
    the last `finish_reason` that is set win.
    """
    model = next((piece.model for piece in reversed(pieces) if piece.model), None)
    # Nearly all pieces have nothing but text, and this runs for each message: they are looked at once, not nine times.
    pieces = [piece for piece in pieces if not _is_plain(piece)]
    if not pieces:
        return msgspec.structs.replace(whole, model=model)
    return msgspec.structs.replace(
        whole,
        in_token=add_counts(piece.in_token for piece in pieces),
        out_token=add_counts(piece.out_token for piece in pieces),
        model=model,
        finish_reason=next((piece.finish_reason for piece in reversed(pieces) if piece.finish_reason), None),
        reasoning=join_text(piece.reasoning for piece in pieces),
        tokens=tuple(token for piece in pieces for token in piece.tokens),
        tool_calls=whole_calls(call for piece in pieces for call in piece.tool_calls),
        cached_token=add_counts(piece.cached_token for piece in pieces),
        reasoning_token=add_counts(piece.reasoning_token for piece in pieces),
    )


def _is_plain(piece: Completion) -> bool:
    return (
        piece.in_token is None
        and piece.out_token is None
        and piece.reasoning is None
        and piece.finish_reason is None
        and not piece.tokens
        and not piece.tool_calls
        and piece.cached_token is None
        and piece.reasoning_token is None
    )
