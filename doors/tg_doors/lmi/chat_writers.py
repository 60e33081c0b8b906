"""Records of an answer to a raw text -> the formats `json_chat`, `jsonlines_chat` and `sse_chat`: OpenAI's chat."""

from functools import partial

from typing_extensions import override

from tg_doors.lmi.line_writer import JSON_LINES
from tg_doors.lmi.parameters import Order
from tg_gateway.dialects import CompletionWriter, Output, WrappingWriter, join_output, json_line
from tg_gateway.dialects.chat import ChatStreamWriter, encode_chat
from tg_schema import TextCompletionResponse


def make_chat_body_writer(order: Order) -> CompletionWriter:
    """`json_chat`: OpenAI's whole chat completion."""
    return CompletionWriter(partial(encode_chat, model=order.model, n=order.parameters.generated), order.headers)


def make_chat_stream_writer(order: Order) -> ChatStreamWriter:
    """`sse_chat`: OpenAI's writer of the chunks of a chat completion."""
    writer = ChatStreamWriter(order.model)
    writer.headers = {**writer.headers, **order.headers}
    return writer


class ChatLineWriter(WrappingWriter[TextCompletionResponse]):
    """`jsonlines_chat`: the chunks of `sse_chat` as lines, without the event after the last one."""

    def __init__(self, order: Order) -> None:
        super().__init__(make_chat_stream_writer(order))
        self.content_type, self.keep_alive = JSON_LINES, b""

    @override
    def change(self, data: Output) -> bytes:
        events = [event.removeprefix(b"data: ") for event in join_output(data).split(b"\n\n") if event]
        return b"".join([json_line(event) for event in events if event != b"[DONE]"])
