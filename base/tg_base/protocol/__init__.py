"""Requestor <-> processor: what they say to each other on the bus, and the clocks they say it by."""

from tg_base.protocol.awake_clock import AwakeClock
from tg_base.protocol.echo import Echo
from tg_base.protocol.heartbeat import Liveness
from tg_base.protocol.link_sender import Failed, Link
from tg_base.protocol.messages import (
    CONTROL,
    Announce,
    Beat,
    Cancel,
    Control,
    Frame,
    Have,
    LinkState,
    Presence,
    Resend,
    StreamKey,
    Wanted,
)
from tg_base.protocol.properties import whole_number
from tg_base.protocol.publisher_clocks import PublisherClocks
from tg_base.protocol.readings import Readings
from tg_base.protocol.reorder_buffer import LinkReader
from tg_base.protocol.request_headers import Call
from tg_base.protocol.route import Route

__all__ = [
    "CONTROL", "Announce", "AwakeClock", "Beat", "Call", "Cancel", "Control", "Echo", "Failed", "Frame", "Have", "Link",
    "LinkReader", "LinkState", "Liveness", "Presence", "PublisherClocks", "Readings", "Resend", "Route", "StreamKey",
    "Wanted", "whole_number",
]  # fmt: skip
