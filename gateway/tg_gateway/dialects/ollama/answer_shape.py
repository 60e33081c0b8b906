"""A piece of an answer -> JSON in the shape of `/api/chat`, or of `/api/generate`."""

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from typing_extensions import override

from tg_schema import encode


class AnsweredFunction(msgspec.Struct, frozen=True):
    """What the model calls; `index` counts the calls of the answer."""

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


class _Generated(msgspec.Struct, frozen=True, omit_defaults=True):
    response: str
    thinking: str | None = None


class Tail(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON after the text of a piece; the last piece has all of it. A count that was not reported is left out."""

    done: bool
    done_reason: str | None = None
    logprobs: tuple[msgspec.Struct, ...] = ()
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None


class AnswerShape(ABC):
    """Makes the pieces of one answer.

    Args:
        model: its name, as the client said it.
        now: when the request came.
        own: the same model's own name; an answer by another model, such as an adapter, has that one's name.
    """

    _text: bytes
    """The JSON before the text of a piece that has only text."""
    _text_end: bytes

    def __init__(self, model: str, now: datetime | None = None, own: str | None = None) -> None:
        self._own = own
        self._asked = (now or datetime.now(UTC)).isoformat(timespec="microseconds").replace("+00:00", "Z")
        self._write_head(model)

    def name(self, model: str | None) -> None:
        """Put the answering model's name into the pieces."""
        if model and model != self._own:
            self._write_head(model)

    def _write_head(self, model: str) -> None:
        self._head = b'{"model":%b,"created_at":%b' % (encode(model), encode(self._asked))
        self._text_head = self._head + self._text

    def write_text(self, text: str) -> bytes:
        """A piece with nothing but text."""
        return b"%b%b%b" % (self._text_head, encode(text), self._text_end)

    def write(
        self, tail: Tail, text: str = "", thinking: str | None = None, calls: tuple[AnsweredCall, ...] = ()
    ) -> bytes:
        """Any piece."""
        return b"%b,%b,%b" % (self._head, self._write_content(text, thinking, calls), encode(tail)[1:])

    @abstractmethod
    def _write_content(self, text: str, thinking: str | None, calls: tuple[AnsweredCall, ...]) -> bytes:
        """The member, or members, that have the text."""


class ChatShape(AnswerShape):
    """A message of the assistant."""

    _text = b',"message":{"role":"assistant","content":'
    _text_end = b'},"done":false}'

    @override
    def _write_content(self, text: str, thinking: str | None, calls: tuple[AnsweredCall, ...]) -> bytes:
        return b'"message":' + encode(AnsweredMessage("assistant", text, thinking, calls))


class GenerateShape(AnswerShape):
    """A text, which has no calls."""

    _text = b',"response":'
    _text_end = b',"done":false}'

    @override
    def _write_content(self, text: str, thinking: str | None, calls: tuple[AnsweredCall, ...]) -> bytes:
        return encode(_Generated(text, thinking))[1:-1]


LOADED: Final = Tail(done=True, done_reason="load")
"""The tail of the answer to a request without a prompt: the model is loaded."""
UNLOADED: Final = Tail(done=True, done_reason="unload")
"""The tail of the answer to a request without a prompt and with a `keep_alive` of 0: unload the model."""
