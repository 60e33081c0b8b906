"""Service -> stream protocol: the interface of every service's response record."""

from collections.abc import Sequence
from typing import Protocol, Self

from tg_schema.errors import Error


class Response(Protocol):
    """A record of a stream of responses. An error is always the last one."""

    @property
    def error(self) -> Error | None:
        """Set only on the last record of a failed stream."""

    @property
    def last(self) -> bool:
        """Whether the stream ends with this record."""

    @classmethod
    def from_error(cls, error: Error) -> Self:
        """The last record of a stream that failed."""

    @classmethod
    def join(cls, records: Sequence[Self]) -> Sequence[Self]:
        """The same stream in as few records as possible: text concatenated, counts (which are deltas) added."""

    def cut(self, size: int) -> Sequence[Self]:
        """The same content in records whose texts have at most `size` JSON bytes each; `join` reverses it.

        The last one has the flags, usage and `finish_reason`. Objects are never cut.
        """
