"""What is told of a process: metrics, logs, and the id of a request through every hop."""

from tg_base.telemetry import trace
from tg_base.telemetry.histogram import Cells
from tg_base.telemetry.log import configure_log, hide_in_logs
from tg_base.telemetry.metrics import (
    ACTIVE,
    ATTEMPTS,
    FIRST_TOKEN,
    GAP,
    OVERHEAD,
    POISON,
    QUEUE_WAIT,
    READER_ENDS,
    REFUSALS,
    RESENDS,
    STREAMS,
    TASKS,
    TOKENS,
)
from tg_base.telemetry.trace import Span

__all__ = [
    "ACTIVE", "ATTEMPTS", "FIRST_TOKEN", "GAP", "OVERHEAD", "POISON", "QUEUE_WAIT", "READER_ENDS", "REFUSALS",
    "RESENDS", "STREAMS", "TASKS", "TOKENS", "Cells", "Span", "configure_log", "hide_in_logs", "trace",
]  # fmt: skip
