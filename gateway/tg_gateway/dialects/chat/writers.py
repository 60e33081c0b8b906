"""Records of an answer -> OpenAI's chunks: what chats and completions share; chunks of a chat, or the whole of it."""

import time
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Tally, Writer, is_text_alone, server_sent_event
from tg_gateway.dialects.chat.answer_style import OPENAI_STYLE, AnswerStyle
from tg_gateway.dialects.chat.choice import StreamedChoice, make_choices
from tg_gateway.dialects.chat.shapes import ChatCompletion, ChunkChoice, describe_usage
from tg_schema import TextCompletionResponse, TgError, Usage, decode, encode
from tg_schema.errors import ProtocolError

DONE: Final = server_sent_event(b"[DONE]")
"""The event after the last one."""


class ChunkWriter(Writer[TextCompletionResponse]):
    """Server-sent events, one for each piece of a choice.

    An SDK takes every orderly end for a whole answer, so after a failure the connection is cut.

    Args:
        before: how every chunk begins, until the model's name.
        model: the model's name in chunks until a record names the model that answers.
        after: what follows the name, until the choices.
        include_usage: whether the last chunk has no choice but the usage, and every other one `"usage":null`.
        style: whose clients they are for.
    """

    cut_after_failure = True

    def __init__(self, before: bytes, model: str, after: bytes, style: AnswerStyle, *, include_usage: bool) -> None:
        self._around = (before, after)
        self._name(model)
        self._is_named = False
        self._tail = b'],"usage":null}\n\n' if include_usage or style.complete else b"]}\n\n"
        self._style = style
        self._include_usage = include_usage
        self._tally = Tally()

    @abstractmethod
    def finish(self) -> Iterable[bytes]:
        """The events that end all choices."""

    def _name(self, model: str) -> None:
        """Put the answering model's name into the chunks.

        It may differ from the requested name, such as one version of several.
        """
        self._is_named = True
        self._head = encode(model).join(self._around)

    @override
    def end(self) -> bytes:
        events = [*self.finish()]
        usage = describe_usage(self._tally.usage) if self._include_usage else None
        if usage is not None:
            events.append(b'%b],"usage":%b}\n\n' % (self._head, encode(usage)))
        return b"".join((*events, DONE))

    @override
    def fail(self, error: TgError) -> bytes:
        return server_sent_event(self._style.encode_failure(error))


def too_many() -> ProtocolError:
    """The error for an answer with a number that was not requested."""
    return ProtocolError("the model sent more answers than were asked for; ask again, or another model")


_TEXT_HEAD: Final = b'%b{"index":%d,"delta":{%b"content":'
_TEXT_TAIL: Final = b'},"finish_reason":null}%b'
"""The JSON around the text of a `ChunkChoice` with nothing else, as `encode` would write it."""


class ChatForm(msgspec.Struct, frozen=True):
    """The parameters from which a `ChatStreamWriter` can be made again."""

    model: str
    n: int
    include_usage: bool
    name: str
    created: int


class ChatStreamWriter(ChunkWriter):
    """The chunks of a chat.

    Args:
        model: the model's name in chunks until a record names the model that answers.
        n: the requested number of answers.
        include_usage: as `ChunkWriter`.
        style: whose clients they are for.
        name: the id in every chunk; None = a new one.
        created: the time in every chunk, in Unix seconds; None = now.
    """

    def __init__(
        self,
        model: str,
        n: int = 1,
        *,
        include_usage: bool = False,
        style: AnswerStyle = OPENAI_STYLE,
        name: str | None = None,
        created: float | None = None,
    ) -> None:
        name, created = name or _new_id(), int(created or time.time())
        self.form = ChatForm(model, n, include_usage, name, created)
        before = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":' % (encode(name), created)
        after = b',%b"choices":[' % (b'"system_fingerprint":"",' if style.complete else b"")
        self._role = b'"role":"assistant",' if style.complete else b""
        self._choices = {index: StreamedChoice(index) for index in range(n)}
        super().__init__(before, model, after, style, include_usage=include_usage)
        self._text_tail = _TEXT_TAIL % self._tail

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        choice = self._choices.get(record.index)
        if choice is None:
            raise too_many()
        # Fast path for nearly every record: assemble the bytes without an object.
        if choice.started and is_text_alone(record):
            choice.begin_text()
            return b"%b%b%b" % (self._text_heads[record.index], encode(record.response), self._text_tail)
        if record.model and not self._is_named:
            self._name(record.model)
        self._tally.add(record)
        opened = b"" if choice.started or len(self._choices) == 1 else self._open()
        return opened + self._frame(choice.write(record))

    @override
    def _name(self, model: str) -> None:
        super()._name(model)
        self._text_heads = {index: _TEXT_HEAD % (self._head, index, self._role) for index in self._choices}

    def _open(self) -> bytes:
        """Send the roles of all choices in order: the SDKs place choices in the order of their first chunks."""
        return self._frame(chunk for choice in self._choices.values() for chunk in choice.open())

    @override
    def finish(self) -> Iterable[bytes]:
        return [self._frame(choice.finish(None)) for choice in self._choices.values()]

    def _frame(self, chunks: Iterable[ChunkChoice]) -> bytes:
        written = map(_complete, chunks) if self._style.complete else chunks
        return b"".join(b"%b%b%b" % (self._head, encode(chunk), self._tail) for chunk in written)


def restore_chat(form: bytes, style: AnswerStyle) -> ChatStreamWriter:
    """The writer of a form. Raises BadRequest if it is not one."""
    of = decode(ChatForm, form)
    return ChatStreamWriter(
        of.model, of.n, include_usage=of.include_usage, style=style, name=of.name, created=of.created
    )


def encode_chat(records: Sequence[TextCompletionResponse], model: str, n: int = 1, *, name: str | None = None) -> bytes:
    """The whole answer in one body.

    Args:
        records: all records of the answer.
        model: the model's name unless a record names the model that answered.
        n: the requested number of answers.
        name: the id of the answer; None = a new one.
    """
    if any(record.index >= n for record in records):
        raise too_many()
    choices, model = make_choices(records, n), records[0].model or model
    usage = describe_usage(Usage.total(records))
    return encode(ChatCompletion(name or _new_id(), "chat.completion", int(time.time()), model, "", choices, usage))


def _complete(chunk: ChunkChoice) -> ChunkChoice:
    delta = msgspec.structs.replace(chunk.delta, role="assistant", content=chunk.delta.content or "")
    return msgspec.structs.replace(chunk, delta=delta)


def _new_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"
