"""Records of an answer -> the format `none`: the text, and nothing else."""

from typing_extensions import override

from tg_gateway.dialects import Writer
from tg_gateway.dialects.lmi.order import Order
from tg_schema import TextCompletionResponse, TgError


class TextWriter(Writer[TextCompletionResponse]):
    """The text as it comes. After a failure the connection is cut, since nothing else could tell it."""

    content_type = "text/plain; charset=utf-8"
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
