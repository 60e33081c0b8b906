"""Records of an answer -> lines of its log, and its end, of which every reader makes the same answer."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

import msgspec
from typing_extensions import override

from tg_gateway.dialects import RecordedEnd, Writer
from tg_schema import TgError, ToolCallDelta, decode, encode
from tg_schema.answer_collector import AnswerCollector
from tg_schema.errors import TooLarge


class RecordWriter(Writer[Any]):
    """Writes the records themselves, one a line.

    Args:
        record: the type of the records.
        keeps_whole: whether the end has them all.

    Attributes:
        complete: whether the last record was written.
        failure: the error that the end has, once it is made.
    """

    def __init__(self, record: type[Any], *, keeps_whole: bool) -> None:
        self._record = record
        self._answer = AnswerCollector[Any](partial(_join, record)) if keeps_whole else None
        self.complete = False
        self.failure: TgError | None = None

    def restore(self, lines: bytes) -> None:
        """Go on behind lines that another process has written."""
        for line in filter(None, lines.split(b"\n")):
            self.write(decode(self._record, line))

    @override
    def write(self, record: Any) -> bytes:
        """The line of one record.

        Raises:
            TooLarge: the answer is larger than any record may be.
        """
        self.complete = record.last
        if self._answer is not None:
            self._answer.add(record)
        return encode(record) + b"\n"

    @override
    def fail(self, error: TgError) -> bytes:
        """Nothing: the end has the error."""
        return b""

    def finish(self, at: float, failure: TgError | None, *, cancelled: bool = False) -> bytes:
        """The body of the end; if the answer is larger than any record may be, that is its error.

        Args:
            at: when it ended, in Unix seconds.
            failure: what ended the answer early; None = it is whole.
            cancelled: the failure is that a client cancelled it.
        """
        records: Sequence[Any] = ()
        try:
            records = () if self._answer is None else self._answer.records()
        except TooLarge as too_large:
            failure = failure or too_large
        self.failure = failure
        error = None if failure is None else failure.record
        listed = tuple(msgspec.Raw(encode(each)) for each in records)
        return encode(RecordedEnd(int(at), error, cancelled, listed))


def _join(kind: type[Any], records: Sequence[Any]) -> Sequence[Any]:
    """Fewer records, of which a reader makes the same answer, with its texts and calls in the same order."""
    return [joined for _, group in groupby(records, _find_kind) for joined in kind.join(list(group))]


def _find_kind(record: Any) -> object:
    """Equal for neighbours that may be joined: those without calls, and further arguments of one call."""
    calls = getattr(record, "tool_calls", ())
    if not calls:
        return None
    further = calls == (ToolCallDelta(calls[0].index, arguments=calls[0].arguments),)
    return calls[0].index if further and not (record.response or record.reasoning or record.signature) else object()
