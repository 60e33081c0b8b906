"""Which request this task works for: one id from the door through every hop, in every line of the log.

A request at a door has an id (`X-Request-Id`). Whatever is asked for its sake, over any number of processes, is a
stream with an id of its own, and says which request and which stream it is for. Beside that goes the W3C trace context.
"""

import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self

import structlog

from tg_base.runtime import new_id

MAX_ID_CHARACTERS = 200
_ID = re.compile(rf"[\w.:-]{{1,{MAX_ID_CHARACTERS}}}", re.ASCII)
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Span:
    """One hop of one request.

    Attributes:
        request: the id of the request that this is done for, the same in every hop.
        stream: this hop's own id; None at a door, which has not asked yet.
        parent: the stream that asked for this one; None at a door, and for what a door has asked.
        traceparent: W3C trace context (Trace Context, section 3.2): one trace for all hops, a new span for each.
    """

    request: str
    stream: str | None
    parent: str | None
    traceparent: str

    @classmethod
    def at_door(cls, request: str, traceparent: str | None) -> Self:
        """A request came. A trace context that is none is replaced by a new one."""
        return cls(request, None, None, _valid(_TRACEPARENT, traceparent) or _new_trace())

    @classmethod
    def from_peer(cls, stream: str, request: str | None, parent: str | None, traceparent: str | None) -> Self:
        """A stream was asked for over the bus, maybe by a peer that knows none of this. What is no id is left out."""
        trace = _valid(_TRACEPARENT, traceparent) or _new_trace()
        return cls(_valid(_ID, request) or stream, stream, _valid(_ID, parent), trace)

    def child(self, stream: str) -> Self:
        """What this hop asks for, under the id `stream`."""
        version, trace, _, flags = self.traceparent.split("-")[:4]
        return type(self)(self.request, stream, self.stream, f"{version}-{trace}-{new_id(8)}-{flags}")

    @property
    def fields(self) -> dict[str, str]:
        """What a line of the log says of it; what is None is left out."""
        said = {"request": self.request, "traceparent": self.traceparent}
        if self.stream is not None:
            said["stream"] = self.stream
        if self.parent is not None:
            said["parent"] = self.parent
        return said


_current: ContextVar[Span | None] = ContextVar("span", default=None)


def enter(span: Span) -> None:
    """Bind the current task to a hop: its logs carry the ids, and what it asks for is done for the same request."""
    _current.set(span)
    structlog.contextvars.unbind_contextvars("stream", "parent")
    structlog.contextvars.bind_contextvars(**span.fields)


def child(stream: str) -> Span:
    """The span of what the current task asks for; a request of its own where the task works for none."""
    span = _current.get()
    return Span(stream, stream, None, _new_trace()) if span is None else span.child(stream)


def _valid(pattern: re.Pattern[str], text: str | None) -> str | None:
    return text if text and pattern.fullmatch(text) else None


def _new_trace() -> str:
    return f"00-{new_id()}-{new_id(8)}-01"
