"""Records of an answer to a raw text -> the formats `json_chat`, `jsonlines_chat` and `sse_chat`: OpenAI's chat."""

from functools import partial

from typing_extensions import override

from tg_doors.lmi.line_writer import JSON_LINES
from tg_doors.lmi.parameters import Order
from tg_gateway.dialects import CompletionWriter, Writer, json_line
from tg_gateway.dialects.chat import ChatStreamWriter, encode_chat
from tg_schema import TextCompletionResponse, TgError


def make_chat_body_writer(order: Order) -> CompletionWriter:
    """`json_chat`: OpenAI's whole chat completion."""
    return CompletionWriter(partial(encode_chat, model=order.model, n=order.parameters.generated), order.headers)


def make_chat_stream_writer(order: Order) -> ChatStreamWriter:
    """`sse_chat`: OpenAI's writer of the chunks of a chat completion."""
    writer = ChatStreamWriter(order.model)
    writer.headers = {**writer.headers, **order.headers}
    return writer


class ChatLineWriter(Writer[TextCompletionResponse]):
    """`jsonlines_chat`: the chunks of `sse_chat` as lines, without the event after the last one."""

    content_type = JSON_LINES
    keep_alive = b""
    cut_after_failure = True

    def __init__(self, order: Order) -> None:
        self._events = make_chat_stream_writer(order)
        self.headers = self._events.headers

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        return _to_lines(self._events.write(record))

    @override
    def end(self) -> bytes:
        return _to_lines(self._events.end())

    @override
    def fail(self, error: TgError) -> bytes:
        return _to_lines(self._events.fail(error))


def _to_lines(events: bytes) -> bytes:
    data = [event.removeprefix(b"data: ") for event in events.split(b"\n\n") if event]
    return b"".join([json_line(each) for each in data if each != b"[DONE]"])
