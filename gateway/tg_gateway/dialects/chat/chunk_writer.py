"""Records of an answer -> OpenAI's chunks: what the streams of chats and of completions share."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Final

from typing_extensions import override

from tg_gateway.dialects import Writer, server_sent_event
from tg_gateway.dialects.chat.answer_style import AnswerStyle
from tg_gateway.dialects.chat.usage import UsageTotals
from tg_schema import TextCompletionResponse, TgError, encode
from tg_schema.errors import ProtocolError

DONE: Final = server_sent_event(b"[DONE]")
"""The event after the last one."""


class ChunkWriter(Writer[TextCompletionResponse]):
    """Server-sent events, one for each piece of a choice.

    An SDK takes every orderly end for a whole answer, so after a failure the connection is cut.

    Args:
        before: how every chunk begins, until the model's name.
        model: the name that chunks say until a record tells who answers.
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
        self._usage = UsageTotals()

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
        usage = self._usage.usage() if self._include_usage else None
        if usage is not None:
            events.append(b'%b],"usage":%b}\n\n' % (self._head, encode(usage)))
        return b"".join((*events, DONE))

    @override
    def fail(self, error: TgError) -> bytes:
        return server_sent_event(self._style.encode_failure(error))


def too_many() -> ProtocolError:
    """The error for an answer with a number that was not requested."""
    return ProtocolError("the model sent more answers than were asked for; ask again, or another model")
