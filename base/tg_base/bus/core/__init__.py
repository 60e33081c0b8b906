"""Bus -> driver: what every bus promises, and the queues and threads that drivers are built on."""

from tg_base.bus.core.api import MAX_MESSAGE, Bus, Delivery
from tg_base.bus.core.handoff import Handover
from tg_base.bus.core.options import BusOptions
from tg_base.bus.core.send_window import SendWindow
from tg_base.bus.core.threaded_reader import Source, ThreadedReader
from tg_base.bus.core.topic_name import is_persistent
from tg_base.bus.core.wait_queue import WaitLine

__all__ = [
    "MAX_MESSAGE",
    "Bus",
    "BusOptions",
    "Delivery",
    "Handover",
    "SendWindow",
    "Source",
    "ThreadedReader",
    "WaitLine",
    "is_persistent",
]
