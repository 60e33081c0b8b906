"""Ask -> log of the bus -> answer: answers that are made apart from the connection that asked, and kept."""

from tg_gateway.jobs.live_parts import LiveParts
from tg_gateway.jobs.logs import KEPT_SECONDS, AnswerLogs
from tg_gateway.jobs.pauses import AttemptPauses
from tg_gateway.jobs.queue import Band
from tg_gateway.jobs.queue_limits import BandBounds
from tg_gateway.jobs.runs import BackgroundRuns
from tg_gateway.jobs.store import AnswerStore

__all__ = [
    "KEPT_SECONDS",
    "AnswerLogs",
    "AnswerStore",
    "AttemptPauses",
    "BackgroundRuns",
    "Band",
    "BandBounds",
    "LiveParts",
]
