"""Records of an answer -> LMI's lines, one for each token; the counts of `3p`; OpenAI's chat, also as lines."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from typing_extensions import override

from tg_doors import tgi
from tg_doors.lmi.answer_shapes import Details, TokenLine, name_token, name_tokens
from tg_doors.lmi.parameters import Order
from tg_doors.lmi.whole_writer import read_answers
from tg_doors.tgi import LastStep, Step, TokenReader, make_prefill, make_token
from tg_gateway.dialects import (
    Output,
    WrappingWriter,
    Writer,
    join_output,
    json_line,
    server_sent_event,
)
from tg_gateway.dialects.chat import ChatStreamWriter, encode_chat
from tg_schema import TextCompletionResponse, TgError, Token, Usage, encode
from tg_schema.completion import NO_TOKEN_ID

JSON_LINES: Final = "application/jsonlines"
EVENTS: Final = "text/event-stream"


class LineWriter(Writer[TextCompletionResponse]):
    """A line for each token; the last one has the whole text, and the details if the request asked for them.

    The last token is known if the answer has its full length, or the provider sends its end token. Where it ends
    otherwise, a further line has the text: its token has the id -1 and no text.

    Args:
        order: the request.
        events: whether a line is a server-sent event.
    """

    def __init__(self, order: Order, *, events: bool) -> None:
        self.content_type = EVENTS if events else JSON_LINES
        self.keep_alive = Writer.keep_alive if events else b""
        self._order = order
        self._frame = server_sent_event if events else json_line
        self._reader = TokenReader()
        self._last = LastStep(order.parameters.max_tokens)
        self._prompt_tokens: list[Token] = []

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        self._prompt_tokens += record.prompt_tokens
        return b"".join(map(self._encode, self._last.pass_on(self._reader.read(record))))

    @override
    def end(self) -> bytes:
        reader, order = self._reader, self._order
        before, last = self._last.end(reader.end)
        reason = reader.name_ending(order.kept_stops)
        prefill = name_tokens(make_prefill(self._prompt_tokens), compatible=order.compatible)
        shown = prefill if order.parameters.wants_prefill else UNSET
        details = Details(reason, reader.generated_tokens, order.text, prefill=shown) if order.details else None
        line = self._encode(last, order.prefix + reader.text, details)
        return b"".join(map(self._encode, before)) + line

    @override
    def fail(self, error: TgError) -> bytes:
        before = b"".join(map(self._encode, self._last.release()))
        return before + self._frame(encode_failed_line(error, compatible=self._order.compatible))

    def _encode(self, step: Step, text: str | UnsetType = UNSET, details: Details | None = None) -> bytes:
        token = name_token(make_token(*step), compatible=self._order.compatible)
        return self._frame(encode(TokenLine(token, text, details)))


def encode_failed_line(error: TgError, *, compatible: bool) -> bytes:
    """The JSON of the only line of an answer that failed, or of its last one."""
    failed = tgi.Token(NO_TOKEN_ID, "", -1, special=True)
    token = name_token(failed, compatible=compatible, error_msg=error.message)
    return encode(TokenLine(token, "", Details("error", None, None)))


_WORDS: Final = {"length": "length", "error": "error"}
"""`stop_reason` of an ending; every other one is "stop"."""


class GenerationBody(msgspec.Struct, frozen=True):
    """A piece of text, or all of it. null = unknown, or not known yet."""

    generation: str
    prompt_token_count: int | None
    generation_token_count: int | None
    stop_reason: str | None


class Metering(msgspec.Struct, frozen=True, rename="camel"):
    """The counts that are billed."""

    input_token_count: int | None
    output_token_count: int | None


class Metered(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole answer, or a line of a stream, of which the last one has `metering`."""

    body: GenerationBody
    metering: Metering | UnsetType = UNSET
    content_type: str = msgspec.field(default_factory=lambda: "application/json")
    error: str = ""


def encode_metered(order: Order, records: Sequence[TextCompletionResponse]) -> bytes:
    """`3p`."""
    best = read_answers(records, order).best
    # Count all answers: the client pays also for those that are not shown.
    used = Usage.total(records)
    inputs, outputs = used.in_token, used.out_token
    reason = _WORDS.get(best.finish_reason, "stop")
    body = GenerationBody(order.prefix + best.text, inputs, best.generated_tokens, reason)
    return encode(Metered(body, Metering(inputs, best.generated_tokens if outputs is None else outputs)))


class MeteredLineWriter(Writer[TextCompletionResponse]):
    """`3p_stream`: a line for each token, and a last one with the counts."""

    content_type = JSON_LINES
    keep_alive = b""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._reader = TokenReader()

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        steps = self._reader.read(record)
        return b"".join([self._encode(step.text) for step in steps if not step.token.special])

    @override
    def end(self) -> bytes:
        reader = self._reader
        reason = _WORDS.get(reader.name_ending(self._order.kept_stops), "stop")
        generated = reader.generated_tokens
        return self._encode("", reason, Metering(reader.usage.in_token, generated), generated)

    @override
    def fail(self, error: TgError) -> bytes:
        return json_line(encode(Metered(GenerationBody("", None, None, "error"), UNSET, JSON_LINES, error.message)))

    def _encode(
        self, text: str, reason: str | None = None, metering: Metering | UnsetType = UNSET, generated: int | None = None
    ) -> bytes:
        body = GenerationBody(text, self._reader.usage.in_token, generated, reason)
        return json_line(encode(Metered(body, metering, JSON_LINES)))


def encode_whole_chat(order: Order, records: Sequence[TextCompletionResponse]) -> bytes:
    """`json_chat`: OpenAI's whole chat completion."""
    return encode_chat(records, order.model, order.parameters.generated)


class ChatLineWriter(WrappingWriter[TextCompletionResponse]):
    """`jsonlines_chat`: the chunks of `sse_chat` as lines, without the event after the last one."""

    def __init__(self, order: Order) -> None:
        super().__init__(ChatStreamWriter(order.model))
        self.content_type, self.keep_alive = JSON_LINES, b""

    @override
    def change(self, data: Output) -> bytes:
        events = [event.removeprefix(b"data: ") for event in join_output(data).split(b"\n\n") if event]
        return b"".join([json_line(event) for event in events if event != b"[DONE]"])
