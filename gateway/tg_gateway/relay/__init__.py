"""Door -> requestor -> door: one request relayed, measured and ended, whatever the door."""

from tg_gateway.relay.live import Live
from tg_gateway.relay.relay import DEFECT_MESSAGE, DRAIN_ERROR_SECONDS, Exchange, Relay
from tg_gateway.relay.sink import HeldEnd, Sink

__all__ = ["DEFECT_MESSAGE", "DRAIN_ERROR_SECONDS", "Exchange", "HeldEnd", "Live", "Relay", "Sink"]
