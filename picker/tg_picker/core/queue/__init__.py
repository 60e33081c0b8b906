"""Requests that wait for a server: which one goes next, and what the routes promise."""

from tg_picker.core.queue.attainment import Attained, Attainment, RouteAttainment
from tg_picker.core.queue.flow_control import FlowControl
from tg_picker.core.queue.queue_limits import BandLimits, QueueLimits
from tg_picker.core.queue.waiting import Waiting

__all__ = ["Attained", "Attainment", "BandLimits", "FlowControl", "QueueLimits", "RouteAttainment", "Waiting"]
