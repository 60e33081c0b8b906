"""Door -> requestor -> door: one request relayed, measured and ended, whatever the door."""

from tg_gateway.relay.endpoints import DEFAULT_FLOW, Endpoint, Endpoints
from tg_gateway.relay.framing import END_OF_BODY, KEEP_ALIVE, chunk, event, event_chunk, text_frame
from tg_gateway.relay.relay import DEFECT_MESSAGE, Exchange, Relay
from tg_gateway.relay.sink import Sink

__all__ = [
    "DEFAULT_FLOW",
    "DEFECT_MESSAGE",
    "END_OF_BODY",
    "KEEP_ALIVE",
    "Endpoint",
    "Endpoints",
    "Exchange",
    "Relay",
    "Sink",
    "chunk",
    "event",
    "event_chunk",
    "text_frame",
]
