"""Records of an answer -> the whole answer, bounded by the size limit of one record."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from tg_schema.codec import encode
from tg_schema.errors import TooLarge

T = TypeVar("T")

MAX_ANSWER_BYTES = 5 * 1024 * 1024 - 16 * 1024 - 256 * 1024
"""Largest answer in bytes of JSON: one record on the bus (Pulsar's 5 MiB minus room for framing)."""

_JOIN_BYTES = 64 * 1024
"""Bytes of JSON after which the collected records are joined."""


class AnswerCollector(Generic[T]):
    """Collects the records of an answer.

    It joins them as they arrive, so that many small records need only the memory of their text.

    Args:
        joined: joins many records into few, for example `Response.join`.
        limit: largest answer, in bytes of JSON.
    """

    def __init__(self, joined: Callable[[Sequence[T]], Sequence[T]], limit: int = MAX_ANSWER_BYTES) -> None:
        self._joined = joined
        self._limit = limit
        self._blocks: list[T] = []
        self._blocks_size = 0
        self._records: list[T] = []
        self._records_size = 0

    def add(self, record: T) -> None:
        """Add the next record.

        Raises:
            TooLarge: the answer has more than `limit` bytes; what was collected is dropped.
        """
        self._records.append(record)
        self._records_size += len(encode(record))
        if self._records_size >= _JOIN_BYTES:
            self._join()

    def records(self) -> Sequence[T]:
        """The answer, in as few records as possible.

        Raises:
            TooLarge: as `add`.
        """
        self._join()
        return self._joined(self._blocks)

    def _join(self) -> None:
        block = self._joined(self._records)
        self._records, self._records_size = [], 0
        self._blocks.extend(block)
        self._blocks_size += sum(len(encode(record)) for record in block)
        if self._blocks_size > self._limit:
            self._blocks.clear()
            raise TooLarge(f"the answer is larger than {self._limit} bytes; ask for less, or set sampling.max_tokens")
