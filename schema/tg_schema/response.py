"""What every service's response record can do, so that the stream protocol carries all of them alike."""

from collections.abc import Sequence
from typing import Protocol, Self

from tg_schema.errors import Error


class Response(Protocol):
    """A record of a stream of responses. An error is always the last one."""

    @property
    def error(self) -> Error | None:
        """Set on a failed stream's last record, and nowhere else."""

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
        """The same in records whose texts have at most `size` JSON bytes each; `join` undoes it.

        What belongs at an end (flags, usage, `finish_reason`) stands on the last one. Objects are never cut.
        """
