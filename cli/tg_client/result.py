"""Records -> caller: a whole answer as one value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from tg_schema import PromptResponse, TextCompletionResponse
from tg_schema.errors import ProtocolError


@dataclass(frozen=True, slots=True)
class TextCompletionResult:
    """A whole completion. Token counts are None if the provider reported none."""

    text: str
    in_token: int | None = None
    out_token: int | None = None
    model: str | None = None
    finish_reason: str | None = None
    """"stop", "length" (the answer is truncated) or "content_filter"."""

    @classmethod
    def of(cls, records: Sequence[TextCompletionResponse]) -> Self:
        """The records of a stream, added up."""
        (whole,) = TextCompletionResponse.join(records)
        return cls(whole.response or "", whole.in_token, whole.out_token, whole.model, whole.finish_reason)


@dataclass(frozen=True, slots=True)
class PromptResult:
    """A whole answer to a prompt: `text`, or `object` (decoded JSON) if the template's response is JSON."""

    text: str | None = None
    object: Any = None
    in_token: int | None = None
    out_token: int | None = None
    model: str | None = None
    finish_reason: str | None = None

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
