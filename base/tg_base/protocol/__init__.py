"""Requestor <-> processor: their messages on the bus, and their clocks."""

# Keep several names on one line, so that the exports can be read at a glance.
# fmt: off
# isort: off
from tg_base.protocol.clocks import AwakeClock, PublisherClocks
from tg_base.protocol.dead_letter import publish_dead_letter
from tg_base.protocol.encoded_request import EncodedRequest
from tg_base.protocol.heartbeat import ECHO_PROPERTY, Echo, HeartbeatTiming
from tg_base.protocol.link_sender import KeptStream, LinkSender, LinkStream
from tg_base.protocol.message_spacing import FairSpacing
from tg_base.protocol.messages import (
    ACCEPTED_AFTER_SECONDS, CONTROL, IDLE_LINK_SECONDS, KIND_PROPERTY, PEER_PROPERTY, Ack, Adopt, Announce, Cancel,
    Confirmed, Control, Frame, FrameKind, Heartbeat, LinkReport, Nack, Presence, StreamKey,
)
from tg_base.protocol.model_health import ModelHealth
from tg_base.protocol.outbox import Outbox
from tg_base.protocol.request_headers import (
    MAX_NUMBER, MAX_REQUEST_BYTES, QUEUE_PROPERTY, WINDOW_BYTES, Part, RequestHeaders, whole_number,
)
from tg_base.protocol.route import Route, RoutePlan
from tg_base.protocol.subscriptions import Subscriptions, answers
from tg_base.protocol.usage_writer import UsageWriter

__all__ = [
    "ACCEPTED_AFTER_SECONDS", "CONTROL", "ECHO_PROPERTY", "IDLE_LINK_SECONDS", "KIND_PROPERTY", "MAX_NUMBER",
    "MAX_REQUEST_BYTES", "PEER_PROPERTY", "QUEUE_PROPERTY", "WINDOW_BYTES", "Ack", "Adopt", "Announce", "AwakeClock",
    "Cancel", "Confirmed", "Control", "Echo", "EncodedRequest", "FairSpacing", "Frame", "FrameKind", "Heartbeat",
    "HeartbeatTiming", "KeptStream", "LinkReport", "LinkSender", "LinkStream", "ModelHealth", "Nack", "Outbox",
    "Part", "Presence", "PublisherClocks", "RequestHeaders", "Route", "RoutePlan", "StreamKey", "Subscriptions",
    "UsageWriter", "answers", "publish_dead_letter", "whole_number",
]
