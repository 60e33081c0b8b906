"""Records of one answer -> its bytes, in one protocol: a writer is made for each request, and has its state."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from typing_extensions import override

from tg_gateway.dialects.framing import KEEP_ALIVE
from tg_gateway.dialects.output import Output
from tg_schema import TgError
from tg_schema.answer_collector import AnswerCollector
from tg_schema.response import Response

Record = TypeVar("Record", bound=Response)

_UNBUFFERED: Final[Mapping[str, str]] = MappingProxyType({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Writer(ABC, Generic[Record]):
    """Is fed the records of one answer, one by one, and gives the bytes of each. Server-sent events, unless it says so.

    Nothing of it waits. It is called from where records arrive: what takes long here holds up everybody's chunks.

    Attributes:
        content_type: the header of a good answer.
        headers: further headers of a good answer; names and values without line breaks. Read when the head is written:
            before the first byte of a stream, after the last record of a whole answer.
        keep_alive: what is sent in silence; empty = nothing.
        cut_after_failure: whether the connection is cut after the bytes of `fail`, for protocols whose clients take
            every orderly end for a whole answer.
        events_apart: whether each server-sent event is a chunk of HTTP of its own, for clients that take what one read
            gives them for one event.
    """

    content_type: str = "text/event-stream; charset=utf-8"
    headers: Mapping[str, str] = _UNBUFFERED
    keep_alive: bytes = KEEP_ALIVE
    cut_after_failure: bool = False
    events_apart: bool = False

    @abstractmethod
    def write(self, record: Record) -> Output:
        """The bytes of one record, framed as the protocol wants it: none, one event or several."""

    def end(self) -> Output:
        """What follows the last record."""
        return b""

    @abstractmethod
    def fail(self, error: TgError) -> Output:
        """What ends an answer that failed after its first byte; on a WebSocket, also before."""


class WholeWriter(Writer[Record]):
    """Gathers the records, within the bound of what one record may have, and writes them as one body.

    Args:
        record: the type of the records.
    """

    content_type = "application/json"
    headers = _NO_HEADERS
    keep_alive = b""

    def __init__(self, record: type[Record]) -> None:
        self._answer: AnswerCollector[Record] = AnswerCollector(record.join)

    @override
    def write(self, record: Record) -> bytes:
        """Keep one more.

        Raises:
            TooLarge: the answer is larger than any record may be.
        """
        self._answer.add(record)
        return b""

    @override
    def end(self) -> bytes:
        return self.body(self._answer.records())

    @abstractmethod
    def body(self, records: Sequence[Record]) -> bytes:
        """The whole answer. `records` are joined to as few as possible, usually to one."""

    @override
    def fail(self, error: TgError) -> bytes:
        """Over HTTP nothing has been written yet: the dialect's `refuse` answers."""
        return b""
