"""Records of a dynamic batch -> one body with an answer for each text, or lines with a piece of each."""

from collections.abc import Sequence

import msgspec
from typing_extensions import override

from tg_doors.lmi.answer_shapes import GeneratedText
from tg_doors.lmi.failures import HandlerFailure
from tg_doors.lmi.line_writer import JSON_LINES
from tg_doors.lmi.parameters import Order
from tg_doors.lmi.whole_writer import read_answers
from tg_gateway.dialects import FailedRequest, WholeWriter, Writer, json_line
from tg_schema import TextCompletionResponse, TgError, encode

_Item = TextCompletionResponse | FailedRequest


class Outputs(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line. Each list has a place for each text; `errors` is set if a text's answer failed."""

    outputs: list[str]
    errors: list[str | None] = []


class GeneratedTextsWriter(WholeWriter[TextCompletionResponse]):
    """A list with an object for each text, in order: the generated text, or why it failed.

    Args:
        orders: the requests.
    """

    def __init__(self, orders: Sequence[Order]) -> None:
        super().__init__(TextCompletionResponse)
        self._orders = orders
        self._failed: dict[int, TgError] = {}

    @override
    def write(self, record: _Item) -> bytes:
        if isinstance(record, FailedRequest):
            self._failed[record.index] = record.error
            return b""
        return super().write(record)

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        """The body, whose status is that of every whole answer.

        Raises:
            TgError: no text has an answer; it is the error of the first text.
        """
        answers: list[list[TextCompletionResponse]] = [[] for _ in self._orders]
        for record in records:
            answers[record.index].append(msgspec.structs.replace(record, index=0))
        results = [self._make_result(index, each) for index, each in enumerate(answers)]
        if len(self._failed) == len(self._orders):
            raise self._failed[0]
        return encode(results)

    def _make_result(self, index: int, records: Sequence[TextCompletionResponse]) -> GeneratedText | HandlerFailure:
        order = self._orders[index]
        try:
            if index not in self._failed:
                return GeneratedText(order.prefix + read_answers(records, order).best.text)
        except TgError as error:
            self._failed[index] = error
        return HandlerFailure.of(self._failed[index])


class OutputsWriter(Writer[TextCompletionResponse]):
    """A line for each piece of text.

    Joined over all lines, the texts at one place are the answer to the text of that place.

    Args:
        orders: the requests.
    """

    content_type = JSON_LINES
    keep_alive = b""

    def __init__(self, orders: Sequence[Order]) -> None:
        self._prefixes = [order.prefix for order in orders]

    @override
    def write(self, record: _Item) -> bytes:
        if isinstance(record, FailedRequest):
            errors: list[str | None] = [None] * len(self._prefixes)
            errors[record.index] = record.error.message
            return json_line(encode(Outputs([""] * len(self._prefixes), errors)))
        text = self._prefixes[record.index] + (record.response or "")
        if not text:
            return b""
        # The model calls this once, before the first piece.
        self._prefixes[record.index] = ""
        outputs = [""] * len(self._prefixes)
        outputs[record.index] = text
        return json_line(encode(Outputs(outputs)))

    @override
    def fail(self, error: TgError) -> bytes:
        return json_line(encode(HandlerFailure.of(error)))
