"""Door -> requestor -> door: one request relayed, measured and ended, whatever the door."""

from tg_gateway.relay.answer_logs import KEPT_SECONDS, AnswerLogs
from tg_gateway.relay.answer_store import AnswerStore
from tg_gateway.relay.attempt_pauses import AttemptPauses
from tg_gateway.relay.background_runs import BackgroundRuns
from tg_gateway.relay.band import Band
from tg_gateway.relay.band_bounds import BandBounds
from tg_gateway.relay.held_end import HeldEnd
from tg_gateway.relay.live_parts import LiveParts
from tg_gateway.relay.relay import DEFECT_MESSAGE, Exchange, Relay
from tg_gateway.relay.sink import Sink

__all__ = [
    "DEFECT_MESSAGE",
    "KEPT_SECONDS",
    "AnswerLogs",
    "AnswerStore",
    "AttemptPauses",
    "BackgroundRuns",
    "Band",
    "BandBounds",
    "Exchange",
    "HeldEnd",
    "LiveParts",
    "Relay",
    "Sink",
]
