"""Records -> caller: a whole answer as one value, and the turn that continues the conversation."""

from collections.abc import Sequence
from typing import Any, Self

import msgspec

from tg_schema import FinishReason, Message, PromptResponse, TextCompletionResponse, TextPart, Token, ToolCall, Usage
from tg_schema.conversation import Part, ReasoningPart, whole_calls
from tg_schema.errors import ProtocolError


class Choice(msgspec.Struct, frozen=True):
    """One of a request's answers.

    Attributes:
        text: the answer.
        turn: the answer as a turn of the assistant, for `messages` of the next request: the text, the thinking that
                its provider has signed, and the tool calls.
        reasoning: the model's thinking, if the provider sends it.
        tool_calls: the tools that the model calls; answer each with `Message("tool", ..., tool_call_id=call.id)`.
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
    """Only the text if nothing is signed: no provider accepts thinking without a signature."""
    if not any(piece.signature for piece in pieces):
        return text
    parts: list[Part] = []
    for piece in pieces:
        if piece.signature:
            parts.append(ReasoningPart(piece.reasoning or "", piece.signature))
        if piece.response:
            parts.append(TextPart(piece.response))
    return tuple(parts)


class TextCompletionResult(Usage, frozen=True, kw_only=True):
    """A whole completion. Its counts (see `Usage`) are sums over all answers.

    Attributes:
        text: the answer. If there are several, this and all fields except counts are those of the first one.
        model: the name of the model that answered.
        finish_reason: why the answer ended; "length" = it is truncated.
        reasoning: the model's thinking, if the provider sends it.
        tool_calls: the tools that the model calls.
        choices: all answers, by index; one for each of `sampling.n`.
    """

    text: str
    model: str | None = None
    finish_reason: FinishReason | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    choices: tuple[Choice, ...] = ()

    @property
    def turn(self) -> Message:
        """The answer as a turn of the assistant, for `messages` of the next request."""
        return self.choices[0].turn if self.choices else Message("assistant", self.text, self.tool_calls)

    @classmethod
    def of(cls, records: Sequence[TextCompletionResponse]) -> Self:
        """Join all records of a stream."""
        answers: dict[int, list[TextCompletionResponse]] = {}
        for record in records:
            answers.setdefault(record.index, []).append(record)
        choices = tuple(Choice.of(answers[index]) for index in sorted(answers))
        whole = TextCompletionResponse.summarize(records)
        return cls(
            **msgspec.structs.asdict(whole.usage),
            text=whole.response or "",
            model=whole.model,
            finish_reason=whole.finish_reason,
            reasoning=whole.reasoning,
            tool_calls=choices[0].tool_calls,
            choices=choices,
        )


class PromptResult(msgspec.Struct, frozen=True):
    """A whole answer to a prompt: `text`, or `object` (decoded JSON) if the template's response is JSON."""

    text: str | None = None
    object: Any = None
    in_token: int | None = None
    out_token: int | None = None
    model: str | None = None
    finish_reason: FinishReason | None = None

    @classmethod
    def of(cls, records: Sequence[PromptResponse]) -> Self:
        """Join all records of a stream.

        Raises:
            ProtocolError: the object is not JSON.
        """
        (whole,) = PromptResponse.join(records)
        value = None if whole.object is None else _decode(whole.object)
        return cls(whole.text, value, whole.in_token, whole.out_token, whole.model, whole.finish_reason)


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise ProtocolError("the gateway sent an object that is not JSON") from None
