"""Task -> request: one request id from the gateway through every hop, in every log line; and the source of all ids.

A request at the gateway has an id (`X-Request-Id`). Every further request made for it, in any process, is a stream with
its own id, and carries the ids of the first request and of its parent stream. The W3C trace context is sent along with
it.

Ids are the only source of randomness in the protocol. A simulation sets a source of its own, and gets the same ids in
every run.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any, Final, Self

import msgspec

MAX_ID_CHARACTERS = 200
MAX_PAYER_CHARACTERS = 4096
"""Characters of a payer's JSON; a longer one is ignored."""
_ID = re.compile(rf"[\w.:-]{{1,{MAX_ID_CHARACTERS}}}", re.ASCII)
# The version ff and ids of zeros alone are invalid (Trace Context, section 3.2.2).
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_SPAN_ID: Final = slice(36, 52)


class Ids:
    """A source of ids.

    Args:
        token_bytes: returns the given number of random bytes.

    Attributes:
        token_bytes: as given.
        last_number: the highest number given so far; 0 = none yet.
    """

    def __init__(self, token_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self.token_bytes = token_bytes
        self.last_number = 0

    def number(self) -> int:
        """A number above all that this source has given."""
        self.last_number += 1
        return self.last_number


_source = Ids()


def set_source(source: Ids) -> None:
    """Take the ids of this process from this source from now on."""
    global _source  # noqa: PLW0603 - one for the process, as `random` and `secrets` are
    _source = source


def new_id(size: int = 16) -> str:
    """A unique id: `size` random bytes in hexadecimal digits."""
    return _source.token_bytes(size).hex()


def new_number() -> int:
    """A number above all earlier ones of this process."""
    return _source.number()


def last_number() -> int:
    """The highest number given in this process; 0 = none yet."""
    return _source.last_number


class Span(msgspec.Struct, frozen=True):
    """One hop of one request.

    Attributes:
        request: the id of the original request, the same in every hop.
        stream: this hop's own id; None in the gateway before it has asked.
        parent: the stream that made this request; None in the gateway and for its direct requests.
        traceparent: W3C trace context (Trace Context, section 3.2): one trace for all hops, a new span for each.
        caller: stands for the key of the original request, the same in every hop, so that callers share no caches. None
            = no key was required.
        payer: the JSON of the `Payer` of the original request, the same in every hop; None = not known.
        door: the dialect by which it reached the gateway, or "shadow" for a route's copy of it; None = it was sent on
            the bus directly.
        above: the id of its parent span in the trace; "" = it is the first, or another process has the parent.
        began: when it began, in nanoseconds since the epoch; 0 = it is not recorded, or another process records it.
    """

    request: str
    stream: str | None
    parent: str | None
    traceparent: str
    caller: str | None = None
    payer: str | None = None
    door: str | None = None
    above: str = ""
    began: int = 0

    @classmethod
    def at_door(cls, request: str, traceparent: str | None, door: str | None = None) -> Self:
        """The span of a request at the gateway, below its client's span; without a valid one it begins a trace."""
        given = traceparent if traceparent and _TRACEPARENT.fullmatch(traceparent) else None
        if given is None:
            trace, above = _new_trace(), ""
        else:
            trace, above = f"{given[:36]}{new_id(8)}{given[52:]}", given[_SPAN_ID]
        began = 0 if share is None else _begin(trace)
        return cls(request, None, None, trace, door=door, above=above, began=began)

    @classmethod
    def from_peer(
        cls,
        stream: str,
        request: str | None,
        parent: str | None,
        traceparent: str | None,
        caller: str | None = None,
        *,
        payer: str | None = None,
        door: str | None = None,
    ) -> Self:
        """The span of a request from the bus, perhaps from a plain peer. Invalid ids are ignored."""
        trace = traceparent if traceparent and _TRACEPARENT.fullmatch(traceparent) else _new_trace()
        request = request if request and _ID.fullmatch(request) else stream
        parent = parent if parent and _ID.fullmatch(parent) else None
        caller = caller if caller and _ID.fullmatch(caller) else None
        payer = payer if payer and len(payer) <= MAX_PAYER_CHARACTERS else None
        return cls(request, stream, parent, trace, caller, payer, door if door and _ID.fullmatch(door) else None)

    @property
    def fields(self) -> dict[str, str]:
        """The fields of a log line; None is left out."""
        fields = {
            "request": self.request,
            "traceparent": self.traceparent,
            "stream": self.stream,
            "parent": self.parent,
        }
        return {name: value for name, value in fields.items() if value is not None}


_current: ContextVar[Span | None] = ContextVar("span", default=None)
share: float | None = None
"""The share of the traces beginning in this process that is recorded; None = no span is recorded. Set by `sample`."""


def sample(some: float | None) -> None:
    """Set `share`. Traces that others began are recorded if they say so.

    Traces that begin here while nothing is recorded are marked as sampled: others on the way may record them.
    """
    global share  # noqa: PLW0603 - one for the process, as the source of ids
    share = some


def enter(span: Span | None) -> None:
    """Bind the current task to a hop: its log lines carry the ids, and its requests become children of this span."""
    _current.set(span)


def current() -> Span | None:
    """The span of the current task."""
    return _current.get()


def name_stream(stream: str) -> None:
    """Let the log lines of a gateway's task carry the id of the stream that it has asked for."""
    span = _current.get()
    if span is not None:
        _current.set(msgspec.structs.replace(span, stream=stream))


def name_caller(caller: str | None, payer: str | None = None) -> None:
    """Set caller and payer of the current task and of all requests that it makes from now on."""
    span = _current.get() or Span.at_door(new_id(), None)
    _current.set(msgspec.structs.replace(span, caller=caller, payer=payer))


def add_ids(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: the ids of the current task's hop, unless the event has its own."""
    span = _current.get()
    if span is not None:
        for name, value in span.fields.items():
            event.setdefault(name, value)
    return event


def find_request() -> str:
    """The id of the request that the current task works for; "" if it works for none."""
    span = _current.get()
    return "" if span is None else span.request


def find_caller() -> str | None:
    """The original caller of the request that the current task works for; None = unknown."""
    span = _current.get()
    return None if span is None else span.caller


def find_door() -> str | None:
    """The door of the request that the current task works for; None = there is none."""
    span = _current.get()
    return None if span is None else span.door


def own_cache_key(key: str | None) -> str | None:
    """A cache key of the current task's request, made unique to its caller."""
    caller = find_caller()
    return key if key is None or caller is None else hashlib.sha256(f"{caller} {key}".encode()).hexdigest()


def child(stream: str) -> Span:
    """The span of a request that the current task makes; a new request if the task works for none."""
    span = _current.get()
    if span is None:
        span, trace, above = Span(stream, None, None, ""), _new_trace(), ""
    else:
        trace, above = f"{span.traceparent[:36]}{new_id(8)}{span.traceparent[52:]}", span.traceparent[_SPAN_ID]
    began = 0 if share is None else _begin(trace)
    return Span(span.request, stream, span.stream, trace, span.caller, span.payer, span.door, above, began)


def below() -> Span | None:
    """A span for a part of the current task's work, which begins now; None = it is not recorded."""
    span = _current.get()
    if share is None or span is None or not (began := _begin(span.traceparent)):
        return None
    trace = f"{span.traceparent[:36]}{new_id(8)}{span.traceparent[52:]}"
    return msgspec.structs.replace(span, traceparent=trace, above=span.traceparent[_SPAN_ID], began=began)


def is_recorded() -> bool:
    """Whether the spans of the current task are recorded."""
    span = _current.get()
    return share is not None and span is not None and _begin(span.traceparent) > 0


def headers() -> Mapping[str, str]:
    """The headers that an outside server gets with a request of the current task: its logs can be matched with ours.

    Empty if the task works for no request.
    """
    span = _current.get()
    if span is None:
        return {}
    # A plain peer's id may be any text, and some text would end the header.
    named = {"X-Request-Id": span.request} if _ID.fullmatch(span.request) else {}
    return {"traceparent": span.traceparent, **named}


def _begin(trace: str) -> int:
    return time.time_ns() if int(trace[53:], 16) & 1 else 0


def _new_trace() -> str:
    ids = new_id(24)
    # As OpenTelemetry's TraceIdRatioBased: all who sample by the id choose the same traces.
    sampled = share is None or int(ids[16:32], 16) < share * 2**64
    return f"00-{ids[:32]}-{ids[32:]}-{'01' if sampled else '00'}"
