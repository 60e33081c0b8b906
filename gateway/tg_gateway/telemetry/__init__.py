"""What the doors tell: their metrics, and one line of the log for each request."""

from tg_gateway.telemetry.access_log import AccessLogEntry
from tg_gateway.telemetry.metrics import (
    AUTH_FAILURES,
    MALFORMED,
    SOCKETS,
    STREAMING,
    UNAUTHENTICATED_REFUSED,
    render_metrics,
    show_metrics,
)

__all__ = [
    "AUTH_FAILURES",
    "MALFORMED",
    "SOCKETS",
    "STREAMING",
    "UNAUTHENTICATED_REFUSED",
    "AccessLogEntry",
    "render_metrics",
    "show_metrics",
]
