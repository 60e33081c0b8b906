"""Records of an answer -> LMI's JSON of the whole answer, or its text alone."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import UNSET
from typing_extensions import override

from tg_doors.lmi import answer_shapes as shapes
from tg_doors.lmi.answer_shapes import name_tokens
from tg_doors.lmi.parameters import Order
from tg_doors.tgi import GeneratedAnswer, GeneratedAnswers, make_prefill
from tg_gateway.dialects import BodyWriter, CompletionWriter, Writer
from tg_schema import TextCompletionResponse, TgError, encode


def make_whole_writer(
    encode_whole: Callable[[Order, Sequence[TextCompletionResponse]], bytes],
    order: Order,
    content_type: str = BodyWriter.content_type,
) -> CompletionWriter:
    """The writer of a body that this function makes."""
    return CompletionWriter(partial(encode_whole, order), content_type=content_type)


def encode_answer(order: Order, records: Sequence[TextCompletionResponse]) -> bytes:
    """`json`: the whole answer in one object, or, with TGI's names, in a list of one."""
    answers = read_answers(records, order)
    details = _describe(answers, order) if order.details else None
    whole = shapes.GeneratedText(order.prefix + answers.best.text, details)
    return encode([whole] if order.compatible else whole)


def read_answers(records: Sequence[TextCompletionResponse], order: Order) -> GeneratedAnswers:
    """The generated answers, the best first.

    Raises:
        ProtocolError: there are more answers than were requested.
        ContentFilter: the provider's filter ended an answer.
    """
    return GeneratedAnswers.of(records, order.kept_stops, order.parameters.generated)


def _describe(answers: GeneratedAnswers, order: Order) -> shapes.Details:
    best, compatible = answers.best, order.compatible
    prefill = name_tokens(make_prefill(best.prompt_tokens), compatible=compatible)
    return shapes.Details(
        best.finish_reason,
        best.generated_tokens,
        order.text,
        name_tokens(best.tokens, compatible=compatible),
        prefill if order.parameters.wants_prefill else UNSET,
        _name_tops(best, compatible=compatible),
        tuple(_describe_other(other, order) for other in answers.others[: order.parameters.returned - 1]),
    )


def _describe_other(answer: GeneratedAnswer, order: Order) -> shapes.Sequence:
    return shapes.Sequence(
        answer.finish_reason,
        answer.generated_tokens,
        name_tokens(answer.tokens, compatible=order.compatible),
        order.prefix + answer.text,
        _name_tops(answer, compatible=order.compatible),
    )


def _name_tops(answer: GeneratedAnswer, *, compatible: bool) -> tuple[tuple[shapes.Token, ...], ...]:
    return tuple(name_tokens(tops, compatible=compatible) for tops in answer.top_tokens)


PLAIN_TEXT: Final = "text/plain; charset=utf-8"


def make_text_writer(order: Order) -> Writer[TextCompletionResponse]:
    """`none`: the text as it is generated; for several answers, the best one's text, known only at their end."""
    if order.parameters.generated == 1:
        return TextWriter(order)
    return make_whole_writer(_encode_best_text, order, PLAIN_TEXT)


def _encode_best_text(order: Order, records: Sequence[TextCompletionResponse]) -> bytes:
    return (order.prefix + read_answers(records, order).best.text).encode()


class TextWriter(Writer[TextCompletionResponse]):
    """The text as it is generated. After a failure the connection is cut: the format cannot express an error."""

    content_type = PLAIN_TEXT
    keep_alive = b""
    cut_after_failure = True

    def __init__(self, order: Order) -> None:
        self._prefix = order.prefix.encode()

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        prefix, self._prefix = self._prefix, b""
        return prefix + (record.response or "").encode() if not record.index else prefix

    @override
    def fail(self, error: TgError) -> bytes:
        return b""
