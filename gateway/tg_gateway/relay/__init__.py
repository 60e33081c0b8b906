"""Door -> requestor -> door: one request relayed, measured and ended, whatever the door."""

from tg_gateway.relay.relay import DEFECT_MESSAGE, Exchange, Relay
from tg_gateway.relay.sink import Sink

__all__ = ["DEFECT_MESSAGE", "Exchange", "Relay", "Sink"]
