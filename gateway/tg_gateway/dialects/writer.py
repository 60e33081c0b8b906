"""Records of one answer -> its bytes in one protocol: a writer is made for each request, and holds its state."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from typing_extensions import override

from tg_gateway.dialects.field_names import FieldNames
from tg_gateway.dialects.framing import KEEP_ALIVE
from tg_gateway.dialects.output import Output
from tg_schema import TextCompletionResponse, TgError
from tg_schema.answer_collector import AnswerCollector
from tg_schema.completion import UNCOUNTED, counts_of
from tg_schema.response import Response

Record = TypeVar("Record", bound=Response)

_UNBUFFERED: Final[Mapping[str, str]] = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_NO_HEADERS: Final[Mapping[str, str]] = {}


class Writer(ABC, Generic[Record]):
    """Takes the records of one answer, one by one, and returns the bytes of each; by default server-sent events.

    It never waits. It is called as records arrive: slow work here delays the chunks of all streams.

    Attributes:
        content_type: the header of a good answer.
        headers: further headers of a good answer; names and values without line breaks. Read when the head is written:
            before the first byte of a stream, after the last record of a whole answer.
        keep_alive: bytes that are sent during silence; empty = none.
        cut_after_failure: whether the connection is cut after the bytes of `fail`, for protocols whose clients
            take every orderly end for a whole answer.
        events_apart: whether each server-sent event is an HTTP chunk of its own, for clients that take the data
            of one read for one event.
        form: before the first record, all that `Dialect.restore` needs to make a writer of the same bytes; it can be
            encoded as JSON. None = the answer cannot be kept as a stream.
        record_type: the type of the records.
        fields: if the answer is kept, the client's names of a request's fields, as in its `Ask`.
    """

    content_type: str = "text/event-stream; charset=utf-8"
    headers: Mapping[str, str] = _UNBUFFERED
    keep_alive: bytes = KEEP_ALIVE
    cut_after_failure: bool = False
    events_apart: bool = False
    form: Any = None
    record_type: type[Any] = TextCompletionResponse
    fields: FieldNames | None = None

    @abstractmethod
    def write(self, record: Record) -> Output:
        """The bytes of one record, framed as the protocol wants it: none, one event or several."""

    def end(self) -> Output:
        """The bytes after the last record."""
        return b""

    @abstractmethod
    def fail(self, error: TgError) -> Output:
        """The bytes that end an answer which failed after its first byte; on a WebSocket, also before."""


class WrappingWriter(Writer[Record]):
    """Passes on what another writer makes. Derived classes change the records, or the bytes.

    Args:
        writer: writes the answer.
    """

    def __init__(self, writer: Writer[Record]) -> None:
        self.content_type, self.headers = writer.content_type, writer.headers
        self.keep_alive, self.cut_after_failure = writer.keep_alive, writer.cut_after_failure
        self._writer = writer

    @override
    def write(self, record: Record) -> Output:
        return self.change(self._writer.write(record))

    @override
    def end(self) -> Output:
        return self.change(self._writer.end())

    @override
    def fail(self, error: TgError) -> Output:
        return self.change(self._writer.fail(error))

    def change(self, data: Output) -> Output:
        """The bytes that are sent in place of these."""
        return data


class BodyWriter(Writer[Record]):
    """Writes one body, after the last record."""

    content_type = "application/json"
    headers = _NO_HEADERS
    keep_alive = b""

    @override
    def fail(self, error: TgError) -> bytes:
        """Nothing: over HTTP no byte was written yet, so the dialect's `refuse` answers."""
        return b""


class WholeWriter(BodyWriter[Record]):
    """Collects the records, up to the size limit of one record, and writes them as one body.

    Args:
        record: the type of the records.
    """

    def __init__(self, record: type[Record]) -> None:
        self._answer: AnswerCollector[Record] = AnswerCollector(record.join)

    @override
    def write(self, record: Record) -> bytes:
        """Collect a record.

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


class CompletionWriter(WholeWriter[Any]):
    """The whole answer of a completion, or of another service, made by a function.

    Args:
        make: returns the body of all records. It can be pickled: a function of a module, or a `partial` of one.
        content_type: the header of a good answer.
        record: the type of the records.
    """

    def __init__(
        self,
        make: Callable[[Sequence[Any]], bytes],
        content_type: str = BodyWriter.content_type,
        record: type[Any] = TextCompletionResponse,
    ) -> None:
        super().__init__(record)
        self.record_type = record
        self._make = make
        self.content_type = content_type

    @override
    def body(self, records: Sequence[Any]) -> bytes:
        return self._make(records)


def is_text_alone(record: TextCompletionResponse) -> bool:
    """Whether it has text, and nothing else that any protocol sends, now or at the end of the answer.

    It runs for each chunk. Check first those fields that are set most often in records with text.
    """
    return bool(
        record.response
        and not record.end_of_stream
        and not record.tokens
        and record.reasoning is None
        and not record.tool_calls
        and record.finish_reason is None
        and counts_of(record) == UNCOUNTED
        and record.signature is None
        and record.stopped_by is None
    )
