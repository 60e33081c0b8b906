"""Records of an answer -> the format `none`: the text, and nothing else."""

from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from tg_doors.lmi.order import Order
from tg_doors.lmi.whole_writer import OrderWriter, read_answers
from tg_gateway.dialects import Writer
from tg_schema import TextCompletionResponse, TgError

PLAIN_TEXT: Final = "text/plain; charset=utf-8"


def make_text_writer(order: Order) -> Writer[TextCompletionResponse]:
    """`none`: the text as it comes, or, of several answers, that of the best, which is known at their end."""
    return BestTextWriter(order) if order.parameters.generated > 1 else TextWriter(order)


class BestTextWriter(OrderWriter):
    """The text of the best of several answers."""

    content_type = PLAIN_TEXT

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        return (self.order.prefix + read_answers(records, self.order).best.text).encode()


class TextWriter(Writer[TextCompletionResponse]):
    """The text as it comes. After a failure the connection is cut, since nothing else could tell it."""

    content_type = PLAIN_TEXT
    keep_alive = b""
    cut_after_failure = True

    def __init__(self, order: Order) -> None:
        self.headers = {**Writer.headers, **order.headers}
        self._prefix = order.prefix.encode()

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        prefix, self._prefix = self._prefix, b""
        return prefix + (record.response or "").encode() if not record.index else prefix

    @override
    def fail(self, error: TgError) -> bytes:
        return b""
