"""Request -> log: one line for each request, and the doors' metrics. Never a prompt, never a token."""

import time
from dataclasses import dataclass, field

import structlog

from tg_base.telemetry import Attribute, Span, end_span, span_names
from tg_gateway.telemetry.metrics import find_key_requests, find_request_counter
from tg_schema.errors import BadRequest, Cancelled, Internal

log = structlog.get_logger()


@dataclass(slots=True)
class AccessLogEntry:
    """What is known of a request so far; logged once, when it is over.

    Attributes:
        door: "http", "sse" or "socket".
        request: the id in the `X-Request-Id` header; on a socket, the handshake's id and a number.
        traceparent: the client's header, unchanged.
        key: the name of the API key that asked.
        model: the model that answered, by its name in the configuration; None = not known.
        stream: the stream's id, which every later hop logs as well.
        records: how many were relayed.
        first: seconds to the first of them.
        status: the HTTP status, or what it would have been.
        outcome: "ok", or the type of the error that ended it; until `end` is called, the type for a client that left.
        span: its span, in its trace; None = it has none.
        name: the name of its span, once that is recorded: the method, and the path of its mount; "" = its door.
        routine: whether such requests come often; if one succeeds, its line has the level "debug".
    """

    door: str
    request: str
    traceparent: str | None = None
    key: str | None = None
    flow: str | None = None
    service: str | None = None
    model: str | None = None
    stream: str | None = None
    records: int = 0
    first: float | None = None
    status: int = Cancelled.status
    outcome: str = ""
    span: Span | None = None
    name: str = ""
    routine: bool = False
    started: float = field(default_factory=time.monotonic)

    def end(self, status: int, outcome: str) -> None:
        """Say how the request ended."""
        self.status, self.outcome = status, outcome

    def write(self) -> None:
        """Write the line; the request is over."""
        self.outcome = self.outcome or Cancelled.type
        if self.span is not None and self.span.began:
            self._end_span(self.span)
        find_request_counter(self.door, self.service or "none", self.outcome).inc()
        if self.key is not None:
            find_key_requests(self.key, self.outcome).inc()
        say = log.debug if self._is_dull else log.info
        say(
            "gateway.request",
            door=self.door,
            request=self.request,
            key=self.key,
            flow=self.flow,
            service=self.service,
            model=self.model,
            stream=self.stream,
            status=self.status,
            outcome=self.outcome,
            records=self.records,
            first=None if self.first is None else round(self.first, 6),
            seconds=round(time.monotonic() - self.started, 6),
        )

    @property
    def _is_dull(self) -> bool:
        """Whether the line is uninteresting: such requests come often, and this one went well."""
        return self.routine and self.outcome == "ok" and self.status < BadRequest.status

    def _end_span(self, span: Span) -> None:
        if self._is_dull:
            return
        method, _, route = self.name.partition(" ")
        about: dict[str, Attribute] = {
            span_names.METHOD: method or None,
            span_names.ROUTE: route or None,
            span_names.STATUS: self.status,
            span_names.KEY: self.key,
            span_names.FLOW: self.flow,
            span_names.REQUEST: self.request,
            span_names.TIME_TO_FIRST_CHUNK: self.first,
            span_names.ERROR_TYPE: None if self.outcome == "ok" else self.outcome,
        }
        # A refusal is the client's error, not a failure of ours.
        error = self.outcome if self.status >= Internal.status or self.status == Cancelled.status else ""
        end_span(span, self.name or self.door, "internal" if self.door == "background" else "server", about, error)
