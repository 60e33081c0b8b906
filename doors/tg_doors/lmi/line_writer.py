"""Records of a streamed answer -> LMI's lines, one for each token: `application/jsonlines`, or server-sent events."""

from typing import Final

from typing_extensions import override

from tg_doors.lmi.answer_shapes import Details, TokenLine, make_error_token, name_token, name_tokens
from tg_doors.lmi.parameters import Order
from tg_doors.tgi import LastStep, Step, TokenReader, make_prefill, make_token
from tg_gateway.dialects import Writer, is_text_alone, json_line, server_sent_event
from tg_schema import TextCompletionResponse, TgError, Token, encode
from tg_schema.completion import NO_TOKEN_ID

JSON_LINES: Final = "application/jsonlines"
EVENTS: Final = "text/event-stream"
_LINE: Final = b'%b{"token":{"id":%d,"text":%b,"log_prob":%b}}%b'
_COMPATIBLE_LINE: Final = b'%b{"token":{"id":%d,"text":%b,"logprob":%b,"special":false}}%b'
"""A `TokenLine` of an ordinary token, as `encode` would write it: nearly all of them are such."""


class LineWriter(Writer[TextCompletionResponse]):
    """A line for each token; the last one has the whole text, and the details if asked for.

    Which token is the last is known where the answer has its full length, or where the provider tells its end token.
    Where it ends otherwise, a further line has the text: its token has the id -1 and no text.

    Args:
        order: what was asked.
        events: whether a line is a server-sent event.
    """

    def __init__(self, order: Order, *, events: bool) -> None:
        self.content_type = EVENTS if events else JSON_LINES
        self.keep_alive = Writer.keep_alive if events else b""
        self.headers = {**Writer.headers, **order.headers}
        self._order = order
        self._frame = server_sent_event if events else json_line
        self._line = _COMPATIBLE_LINE if order.compatible else _LINE
        self._start, self._stop = (b"data: ", b"\n\n") if events else (b"", b"\n")
        self._reader = TokenReader()
        self._last = LastStep(order.parameters.max_tokens)
        self._prompt_tokens: list[Token] = []

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        if not record.index and is_text_alone(record) and not self._last.holds:
            text = record.response or ""
            self._reader.add_text(text)
            return self._line % (self._start, NO_TOKEN_ID, encode(text), b"null", self._stop)
        self._prompt_tokens += record.prompt_tokens
        return b"".join(map(self._encode, self._last.pass_on(self._reader.read(record))))

    @override
    def end(self) -> bytes:
        reader, order = self._reader, self._order
        before, last = self._last.end(reader.end)
        reason = reader.name_ending(order.kept_stops)
        details = Details(reason, reader.generated_tokens, order.text) if order.details else None
        if details is not None and order.parameters.wants_prefill:
            prefill = name_tokens(make_prefill(self._prompt_tokens), compatible=order.compatible)
            details = Details(details.finish_reason, details.generated_tokens, details.inputs, prefill=prefill)
        token = name_token(make_token(*last), compatible=order.compatible)
        line = self._frame(encode(TokenLine(token, order.prefix + reader.text, details)))
        return b"".join(map(self._encode, before)) + line

    @override
    def fail(self, error: TgError) -> bytes:
        before = b"".join(map(self._encode, self._last.release()))
        return before + self._frame(encode_failed_line(error, compatible=self._order.compatible))

    def _encode(self, step: Step) -> bytes:
        token, text = step
        if token.special:
            line = TokenLine(name_token(make_token(token, text), compatible=self._order.compatible))
            return self._frame(encode(line))
        return self._line % (self._start, token.id, encode(text), encode(token.logprob), self._stop)


def encode_failed_line(error: TgError, *, compatible: bool) -> bytes:
    """The JSON of the only line of an answer that failed, or of its last one."""
    token = make_error_token(error.message, compatible=compatible)
    return encode(TokenLine(token, "", Details("error", None, None)))
