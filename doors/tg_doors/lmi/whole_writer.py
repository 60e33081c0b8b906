"""Records of a whole answer -> LMI's JSON."""

from collections.abc import Sequence

from msgspec import UNSET
from typing_extensions import override

from tg_doors.lmi import answer_shapes as shapes
from tg_doors.lmi.answer_shapes import name_tokens
from tg_doors.lmi.order import Order
from tg_doors.tgi import GeneratedAnswer, GeneratedAnswers, make_prefill, make_tokens
from tg_gateway.dialects import WholeWriter
from tg_schema import TextCompletionResponse, encode
from tg_schema.errors import ProtocolError


class OrderWriter(WholeWriter[TextCompletionResponse]):
    """The whole answer of an order; a subclass says in which JSON.

    Args:
        order: what was asked.
    """

    def __init__(self, order: Order) -> None:
        super().__init__(TextCompletionResponse)
        self.headers = order.headers
        self.order = order


class GeneratedTextWriter(OrderWriter):
    """The whole answer in one object, or, with TGI's names, in a list of one."""

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        order = self.order
        answers = read_answers(records, order)
        details = _describe(answers, order) if order.details else None
        whole = shapes.GeneratedText(order.prefix + answers.best.text, details)
        return encode([whole] if order.compatible else whole)


def read_answers(records: Sequence[TextCompletionResponse], order: Order) -> GeneratedAnswers:
    """What was generated, the best first.

    Raises:
        ProtocolError: more answers came than were asked for.
        ContentFilter: the provider's filter ended an answer.
    """
    if any(record.index >= order.parameters.generated for record in records):
        raise ProtocolError("the model sent more answers than were asked for; ask again, or another model")
    return GeneratedAnswers.of(records, order.kept_stops)


def _describe(answers: GeneratedAnswers, order: Order) -> shapes.Details:
    best, compatible = answers.best, order.compatible
    prefill = name_tokens(make_prefill(best.prompt_tokens), compatible=compatible)
    return shapes.Details(
        best.finish_reason,
        best.generated_tokens,
        order.text,
        name_tokens(make_tokens(best.tokens, best.text), compatible=compatible),
        prefill if order.parameters.wants_prefill else UNSET,
        _name_tops(best, compatible=compatible),
        tuple(_describe_other(other, order) for other in answers.others[: order.parameters.returned - 1]),
    )


def _describe_other(answer: GeneratedAnswer, order: Order) -> shapes.Sequence:
    return shapes.Sequence(
        answer.finish_reason,
        answer.generated_tokens,
        name_tokens(make_tokens(answer.tokens, answer.text), compatible=order.compatible),
        order.prefix + answer.text,
        _name_tops(answer, compatible=order.compatible),
    )


def _name_tops(answer: GeneratedAnswer, *, compatible: bool) -> tuple[tuple[shapes.AnyToken, ...], ...]:
    return tuple(name_tokens(tops, compatible=compatible) for tops in answer.top_tokens)
