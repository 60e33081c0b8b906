"""Records of one answer -> caller: its text, thinking and tool calls, and the turn that continues the conversation."""

from collections.abc import Sequence
from typing import Self

import msgspec

from tg_schema import FinishReason, Message, TextCompletionResponse, TextPart, Token, ToolCall
from tg_schema.conversation import Part, ReasoningPart, whole_calls


class Choice(msgspec.Struct, frozen=True):
    """One of a request's answers.

    Attributes:
        text: the answer.
        turn: the answer as a turn of the assistant, for `messages` of the next request: the text, the thinking that
            its provider has signed, and the calls.
        reasoning: the model's thinking, if the provider tells it.
        tool_calls: what the model asks for; each result is a `Message("tool", ..., tool_call_id=call.id)`.
        tokens: ids and log-probabilities, if `sampling.logprobs` asked for them.
        finish_reason: why the answer ended; "length" = it is truncated.
        stopped_by: the stop string or token that ended it, if the provider says which.
        index: which of the `n` answers it is.
        seed: the seed that was used, if the provider says which.
    """

    text: str
    turn: Message
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tokens: tuple[Token, ...] = ()
    finish_reason: FinishReason | None = None
    stopped_by: str | int | None = None
    index: int = 0
    seed: int | None = None

    @classmethod
    def of(cls, records: Sequence[TextCompletionResponse]) -> Self:
        """The records of one answer, in order."""
        pieces = TextCompletionResponse.join(records)
        whole = TextCompletionResponse.summarize(pieces)
        calls = tuple(
            ToolCall(call.id or "", call.name or "", call.arguments or "{}", call.signature)
            for call in whole_calls(call for piece in pieces for call in piece.tool_calls)
        )
        text = whole.response or ""
        return cls(
            text,
            Message("assistant", _content(pieces, text), calls),
            whole.reasoning,
            calls,
            whole.tokens,
            whole.finish_reason,
            whole.stopped_by,
            whole.index,
            whole.seed,
        )


def _content(pieces: Sequence[TextCompletionResponse], text: str) -> str | tuple[Part, ...]:
    """Text alone if nothing is signed: thinking without a signature is of no use to any provider."""
    if not any(piece.signature for piece in pieces):
        return text
    parts: list[Part] = []
    for piece in pieces:
        if piece.signature:
            parts.append(ReasoningPart(piece.reasoning or "", piece.signature))
        if piece.response:
            parts.append(TextPart(piece.response))
    return tuple(parts)
