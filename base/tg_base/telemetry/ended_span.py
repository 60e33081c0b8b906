"""Part of a request -> span -> exporter: what was done, how long it took and how it ended, but never content."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Literal

import msgspec
from typing_extensions import override

from tg_base.telemetry.trace import Span, below, current, enter, sample
from tg_schema import TgError
from tg_schema.errors import Cancelled, Internal

Kind = Literal["internal", "server", "client"]
"""server = a request from outside; client = a request to another party; internal = our own work."""
Attribute = str | int | float | bool | tuple[str, ...] | None
"""None = unknown, and not exported."""
_NONE: Final[Mapping[str, Attribute]] = {}


class EndedSpan(msgspec.Struct, frozen=True):
    """One span.

    Attributes:
        span: its ids, its beginning, and the span above it.
        name: a name for the work, for instance `chat MODEL`.
        kind: see `Kind`.
        attributes: the known facts about it.
        error: the type of the error that ended it; "" = none did.
        end: in nanoseconds since the epoch.
    """

    span: Span
    name: str
    kind: Kind
    attributes: Mapping[str, Attribute]
    error: str
    end: int


_take: Callable[[EndedSpan], None] | None = None


def record_spans(take: Callable[[EndedSpan], None] | None, share: float = 1.0) -> None:
    """Hand the spans of this process to `take`, which must not block or raise; None = record none.

    `share` of the traces that begin in this process are recorded, and those that a caller marks as sampled.
    """
    global _take  # noqa: PLW0603 - one for the process, as logging has
    _take = take
    sample(None if take is None else share)


def end_span(
    span: Span, name: str, kind: Kind = "internal", attributes: Mapping[str, Attribute] = _NONE, error: str = ""
) -> None:
    """Record a span that ends now, if it is recorded. The arguments are those of `EndedSpan`."""
    if _take is not None and span.began:
        _take(EndedSpan(span, name, kind, attributes, error, time.time_ns()))


class Spanning(AbstractContextManager[None]):
    """Records a block, with the error that leaves it. Requests that the block makes become children of its span.

    Args: the fields of `EndedSpan`.
    """

    def __init__(self, name: str, kind: Kind = "internal", attributes: Mapping[str, Attribute] = _NONE) -> None:
        self._about = name, kind, attributes
        self._span: Span | None = None

    @override
    def __enter__(self) -> None:
        self._above, self._span = current(), below()
        if self._span is not None:
            enter(self._span)

    @override
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._span is not None:
            enter(self._above)
            end_span(self._span, *self._about, find_error(error))


def find_error(raised: BaseException | None) -> str:
    """The type of an error as spans have it; "cancelled" also if the reader has left."""
    if raised is None or isinstance(raised, TgError):
        return "" if raised is None else raised.type
    return Cancelled.type if isinstance(raised, asyncio.CancelledError | GeneratorExit) else Internal.type
