"""Records -> items, and at the stream's end a buffer with its prompt and answer, which later prompts can name."""

from collections.abc import Callable
from typing import Final

from typing_extensions import override

from tg_doors.lmtp.buffers import Content
from tg_doors.lmtp.stream_writer import StreamWriter
from tg_gateway.dialects import Output, Writer
from tg_schema import FinishReason, TextCompletionResponse, TgError

_ENDED: Final = "stop"


class LeavingWriter(Writer[TextCompletionResponse]):
    """Wraps another writer, and passes the whole answer to `leave` at the end.

    Args:
        writer: the writer of the stream.
        ids: whether the answer is token ids; otherwise it is text.
        leave: called once, before the last item is sent. The model's own end token is no part of the answer.

    Attributes:
        cancelled: set when the client cancels the stream: the buffer gets the answer up to then.
    """

    def __init__(self, writer: StreamWriter, leave: Callable[[Content], None], *, ids: bool) -> None:
        self.cancelled = False
        self._writer = writer
        self._ids = ids
        self._leave = leave
        self._tokens: list[int] = []
        self._texts: list[str] = []
        self._reason: FinishReason | None = None

    @override
    def write(self, record: TextCompletionResponse) -> Output:
        if self._ids:
            self._tokens += [token.id for token in record.tokens]
        elif record.response:
            self._texts.append(record.response)
        self._reason = record.finish_reason or self._reason
        data = self._writer.write(record)
        if record.last:
            # Leave the buffer before the client can name it, and only if the stream has not failed.
            self._leave(self._make_content())
        return data

    def _make_content(self) -> Content:
        if not self._ids:
            return "".join(self._texts)
        return tuple(self._tokens[:-1] if self._reason == _ENDED else self._tokens)

    @override
    def end(self) -> Output:
        return self._writer.end()

    @override
    def fail(self, error: TgError) -> Output:
        if self.cancelled:
            self.cancelled = False
            self._leave(self._make_content())
        return self._writer.fail(error)
