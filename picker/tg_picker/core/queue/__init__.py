"""Requests that wait for a server: which one goes next, and what the routes promise."""

from tg_picker.core.queue.attainment import Attainment, RouteAttainment
from tg_picker.core.queue.flow_control import FlowControl
from tg_picker.core.queue.queue_limits import BandLimits, QueueLimits
from tg_picker.core.queue.sliding_window import Attained
from tg_picker.core.queue.waiting import Waiting

__all__ = ["Attained", "Attainment", "BandLimits", "FlowControl", "QueueLimits", "RouteAttainment", "Waiting"]
