"""Records of a stream with `error` and `end_of_stream`: how such a stream ends, and how neighbours become one."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tg_schema.errors import Error

AnyRecord = TypeVar("AnyRecord")


class StreamRecord:
    """The base of such records. A subclass defines in `join_whole` how several records without an error become one.

    The base has no fields: the wire has them in the order of declaration, so each record declares its own.
    """

    __slots__ = ()

    @property
    def last(self: Any) -> bool:
        """Whether the stream ends here."""
        return self.end_of_stream is True or self.error is not None

    @classmethod
    def from_error(cls: type[AnyRecord], error: Error) -> AnyRecord:
        """The last record of a failed stream."""
        make: Callable[..., AnyRecord] = cls
        return make(error=error, end_of_stream=True)

    @classmethod
    def join(cls: type[AnyRecord], records: Sequence[AnyRecord]) -> Sequence[AnyRecord]:
        """Fewer records that say the same: text is joined, an object is never split, an error stays apart."""
        if len(records) < 2:
            return records
        own: Any = cls
        final: Any = records[-1]
        if final.error is not None:
            return (*own.join(records[:-1]), final)
        whole: Sequence[AnyRecord] = own.join_whole(records)
        return whole
