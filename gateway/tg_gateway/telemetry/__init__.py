"""What the doors tell: their metrics, and one line of the log for each request."""

from tg_gateway.telemetry.access_log import AccessLogEntry
from tg_gateway.telemetry.metrics import AUTH_FAILURES, MALFORMED, SOCKETS, STRANGERS_REFUSED, STREAMING, show_metrics

__all__ = [
    "AUTH_FAILURES",
    "MALFORMED",
    "SOCKETS",
    "STRANGERS_REFUSED",
    "STREAMING",
    "AccessLogEntry",
    "show_metrics",
]
