"""Records of an answer -> the formats `3p` and `3p_stream`: the text with the counts that a marketplace is paid by."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from typing_extensions import override

from tg_doors.lmi.line_writer import JSON_LINES
from tg_doors.lmi.parameters import Order
from tg_doors.lmi.whole_writer import OrderWriter, read_answers
from tg_doors.tgi import TokenReader
from tg_gateway.dialects import Writer, json_line
from tg_schema import TextCompletionResponse, TgError, encode
from tg_schema.completion import add_usage

_WORDS: Final = {"length": "length", "error": "error"}
"""`stop_reason` of an ending; every other one is "stop"."""


class GenerationBody(msgspec.Struct, frozen=True):
    """A piece of text, or all of it. null = unknown, or not known yet."""

    generation: str
    prompt_token_count: int | None
    generation_token_count: int | None
    stop_reason: str | None


class Metering(msgspec.Struct, frozen=True, rename="camel"):
    """What is paid for."""

    input_token_count: int | None
    output_token_count: int | None


class Metered(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole answer, or a line of a stream, of which the last one has `metering`."""

    body: GenerationBody
    metering: Metering | UnsetType = UNSET
    content_type: str = msgspec.field(default_factory=lambda: "application/json")
    error: str = ""


class MeteredBodyWriter(OrderWriter):
    """`3p`."""

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        best = read_answers(records, self.order).best
        # Of all answers: those that are not shown are paid for too.
        used = add_usage(records)
        inputs, outputs = used["in_token"], used["out_token"]
        reason = _WORDS.get(best.finish_reason, "stop")
        body = GenerationBody(self.order.prefix + best.text, inputs, best.generated_tokens, reason)
        return encode(Metered(body, Metering(inputs, best.generated_tokens if outputs is None else outputs)))


class MeteredLineWriter(Writer[TextCompletionResponse]):
    """`3p_stream`: a line for each token, and a last one with the counts."""

    content_type = JSON_LINES
    keep_alive = b""

    def __init__(self, order: Order) -> None:
        self.headers = {**Writer.headers, **order.headers}
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
        return self._encode("", reason, Metering(reader.in_token, generated), generated)

    @override
    def fail(self, error: TgError) -> bytes:
        return json_line(encode(Metered(GenerationBody("", None, None, "error"), UNSET, JSON_LINES, error.message)))

    def _encode(
        self, text: str, reason: str | None = None, metering: Metering | UnsetType = UNSET, generated: int | None = None
    ) -> bytes:
        body = GenerationBody(text, self._reader.in_token, generated, reason)
        return json_line(encode(Metered(body, metering, JSON_LINES)))
