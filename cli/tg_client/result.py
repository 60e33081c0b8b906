"""Records -> caller: a whole answer as one value."""

from collections.abc import Sequence
from typing import Any, Self

import msgspec

from tg_client.choice import Choice
from tg_schema import FinishReason, Message, PromptResponse, TextCompletionResponse, ToolCall
from tg_schema.errors import ProtocolError


class TextCompletionResult(msgspec.Struct, frozen=True):
    """A whole completion. Token counts are None if the provider reported none.

    Attributes:
        text: the answer; of several answers, this and all other fields except counts are of the first.
        in_token: tokens of the prompt.
        out_token: tokens of all answers.
        model: the name of the model that answered.
        finish_reason: why the answer ended; "length" = it is truncated.
        reasoning: the model's thinking, if the provider tells it.
        tool_calls: what the model asks for.
        cached_token: the part of `in_token` from the provider's cache.
        cache_write_token: the part of `in_token` written into that cache.
        reasoning_token: the part of `out_token` spent on thinking.
        choices: all answers, by index; one for each of `sampling.n`.
    """

    text: str
    in_token: int | None = None
    out_token: int | None = None
    model: str | None = None
    finish_reason: FinishReason | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    cached_token: int | None = None
    cache_write_token: int | None = None
    reasoning_token: int | None = None
    choices: tuple[Choice, ...] = ()

    @property
    def turn(self) -> Message:
        """The answer as a turn of the assistant, for `messages` of the next request."""
        return self.choices[0].turn if self.choices else Message("assistant", self.text, self.tool_calls)

    @classmethod
    def of(cls, records: Sequence[TextCompletionResponse]) -> Self:
        """All records of a stream, added up."""
        answers: dict[int, list[TextCompletionResponse]] = {}
        for record in records:
            answers.setdefault(record.index, []).append(record)
        choices = tuple(Choice.of(answers[index]) for index in sorted(answers))
        whole = TextCompletionResponse.summarize(records)
        return cls(
            whole.response or "",
            whole.in_token,
            whole.out_token,
            whole.model,
            whole.finish_reason,
            whole.reasoning,
            choices[0].tool_calls,
            whole.cached_token,
            whole.cache_write_token,
            whole.reasoning_token,
            choices,
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
        """The records of a stream, added up.

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
