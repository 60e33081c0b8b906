"""Request -> log: one line for each, and what the doors' metrics count. Never a prompt, never a token."""

import time
from dataclasses import dataclass, field

import structlog

from tg_gateway.metrics import REQUESTS

log = structlog.get_logger()


@dataclass(slots=True)
class AccessLine:
    """What is known of a request so far; written once, when it is over.

    Attributes:
        door: "http", "sse" or "socket".
        request: the id in the `X-Request-Id` header, or that of the socket.
        key: the name of the API key that asked.
        stream: the stream's id, which every hop behind the gateway logs as well.
        records: how many were relayed.
        first: seconds to the first of them.
        outcome: "ok", or the type of the error that ended a stream whose status had already been sent.
    """

    door: str
    request: str
    key: str | None = None
    flow: str | None = None
    service: str | None = None
    stream: str | None = None
    records: int = 0
    first: float | None = None
    outcome: str = "ok"
    started: float = field(default_factory=time.monotonic)

    def write(self, status: int, outcome: str) -> None:
        """The request is over. `status` is HTTP's, or would have been; `outcome` is "ok" or an error type."""
        REQUESTS.labels(self.door, self.service or "none", outcome).inc()
        log.info(
            "gateway.request",
            door=self.door,
            request=self.request,
            key=self.key,
            flow=self.flow,
            service=self.service,
            stream=self.stream,
            status=status,
            outcome=outcome,
            records=self.records,
            first=None if self.first is None else round(self.first, 6),
            seconds=round(time.monotonic() - self.started, 6),
        )
