"""Doors -> operator: metrics, and one log line per request; also plain answers that are written within a deadline."""

from tg_gateway.telemetry.access_log import AccessLogEntry
from tg_gateway.telemetry.metrics import (
    AUTH_FAILURES,
    BAND,
    BAND_MADE,
    CHUNK_GAP_SECONDS,
    FIRST_TOKEN_SECONDS,
    MALFORMED,
    OVERHEAD_SECONDS,
    REQUEST_SECONDS,
    SOCKETS,
    STREAMING,
    UNAUTHENTICATED_REFUSED,
    FreshAnswer,
    MetricsPage,
)
from tg_gateway.telemetry.timed_write import write_in_time

__all__ = [
    "AUTH_FAILURES", "BAND", "BAND_MADE", "CHUNK_GAP_SECONDS", "FIRST_TOKEN_SECONDS", "MALFORMED", "OVERHEAD_SECONDS",
    "REQUEST_SECONDS", "SOCKETS", "STREAMING", "UNAUTHENTICATED_REFUSED", "AccessLogEntry", "FreshAnswer",
    "MetricsPage", "write_in_time",
]  # fmt: skip
