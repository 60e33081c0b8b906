"""A piece of an answer -> JSON in the shape of `/api/chat`, or of `/api/generate`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects.chat import TokenLogprob
from tg_schema import encode


class AnsweredFunction(msgspec.Struct, frozen=True):
    """The function that the model calls; `index` counts the calls of the answer."""

    index: int
    name: str
    arguments: dict[str, Any]


class AnsweredCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call, with its id if the provider has one."""

    function: AnsweredFunction
    id: str | None = None


class AnsweredMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the assistant says."""

    role: str
    content: str
    thinking: str | None = None
    tool_calls: tuple[AnsweredCall, ...] = ()


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The fields of both shapes in their order. The last line has all after `done`; an unknown count is left out."""

    model: str
    created_at: str
    message: AnsweredMessage | None = None
    response: str | None = None
    thinking: str | None = None
    # A default that is always on the wire.
    done: bool = msgspec.field(default_factory=bool)
    done_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None


class ChatAnswer(_Answer, frozen=True, kw_only=True):
    """A whole answer of `/api/chat`, or a line of it. The last line has the counts and the nanoseconds."""

    message: AnsweredMessage


class GenerateAnswer(_Answer, frozen=True, kw_only=True):
    """A whole answer of `/api/generate`, or a line of it. The last line has the counts and the nanoseconds."""

    response: str


class AnswerShape(ABC):
    """Makes the pieces of one answer.

    Args:
        model: its name, as the client wrote it.
        now: when the request arrived.
        own: the same model's own name; an answer by another model, such as an adapter, gets the name of the latter.
    """

    def __init__(self, model: str, now: datetime | None = None, own: str | None = None) -> None:
        self._own = own
        asked = (now or datetime.now(UTC)).isoformat(timespec="microseconds").replace("+00:00", "Z")
        self._head = {"model": model, "created_at": asked}

    def name(self, model: str | None) -> None:
        """Put the answering model's name into the pieces."""
        if model and model != self._own:
            self._head["model"] = model

    def write(
        self, text: str = "", thinking: str | None = None, calls: tuple[AnsweredCall, ...] = (), **tail: Any
    ) -> bytes:
        """A piece; `tail` are the fields after its text."""
        return encode(self._make(text, thinking, calls, **self._head, **tail))

    @abstractmethod
    def _make(self, text: str, thinking: str | None, calls: tuple[AnsweredCall, ...], **others: Any) -> _Answer:
        """A piece with this content, and these other fields."""


class ChatShape(AnswerShape):
    """A message of the assistant."""

    @override
    def _make(self, text: str, thinking: str | None, calls: tuple[AnsweredCall, ...], **others: Any) -> ChatAnswer:
        return ChatAnswer(message=AnsweredMessage("assistant", text, thinking, calls), **others)


class GenerateShape(AnswerShape):
    """A text, which has no calls."""

    @override
    def _make(self, text: str, thinking: str | None, calls: tuple[AnsweredCall, ...], **others: Any) -> GenerateAnswer:
        return GenerateAnswer(response=text, thinking=thinking, **others)


LOADED: Final[Mapping[str, Any]] = {"done": True, "done_reason": "load"}
"""The tail of the answer to a request without a prompt: the model is loaded."""
UNLOADED: Final[Mapping[str, Any]] = {"done": True, "done_reason": "unload"}
"""The tail of the answer to a request without a prompt and with a `keep_alive` of 0: unload the model."""
