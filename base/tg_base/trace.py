"""Which stream this task works for, and the W3C trace context that goes with it through every hop."""

import secrets
from contextvars import ContextVar

import structlog

_parent: ContextVar[str | None] = ContextVar("traceparent", default=None)


def enter(stream: str, traceparent: str | None) -> None:
    """Bind the current task to a stream: its logs carry the id, its requests the trace."""
    _parent.set(traceparent)
    structlog.contextvars.bind_contextvars(stream=stream)


def traceparent() -> str:
    """The `traceparent` of a request that this task makes: the same trace, a new span; a new trace where none is.

    See W3C Trace Context, section 3.2 (version, trace-id, parent-id, flags).
    """
    parts = (_parent.get() or "").split("-")
    if len(parts) == 4 and len(parts[1]) == 32:
        return f"00-{parts[1]}-{secrets.token_hex(8)}-{parts[3]}"
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
