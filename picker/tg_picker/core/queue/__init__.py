"""Requests that wait for a server: which one goes next, and whether routes meet their objectives."""

from tg_picker.core.queue.flow_control import FlowControl
from tg_picker.core.queue.queue_limits import BandLimits, QueueLimits
from tg_picker.core.queue.slo_attainment import Attained, RouteSlo, SloAttainment
from tg_picker.core.queue.waiting import Waiting

__all__ = ["Attained", "BandLimits", "FlowControl", "QueueLimits", "RouteSlo", "SloAttainment", "Waiting"]
