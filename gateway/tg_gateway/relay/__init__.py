"""Door -> requestor -> door: one request relayed, measured and ended, whatever the door."""

from tg_gateway.relay.live import Live
from tg_gateway.relay.live_part import LivePart
from tg_gateway.relay.other_gateways import OtherGateways
from tg_gateway.relay.relay import DEFECT_MESSAGE, DRAIN_ERROR_SECONDS, BeforeEnd, Exchange, Relay
from tg_gateway.relay.sink import Sink, send_parts

__all__ = [
    "DEFECT_MESSAGE", "DRAIN_ERROR_SECONDS", "BeforeEnd", "Exchange", "Live", "LivePart", "OtherGateways", "Relay",
    "Sink", "send_parts",
]  # fmt: skip
