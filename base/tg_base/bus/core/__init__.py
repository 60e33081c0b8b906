"""Bus -> driver: the interface of every bus, and the queues and readers that drivers are built on."""

from tg_base.bus.core.api import MAX_MESSAGE_BYTES, Bus, Delivery, Entry, LogWriter
from tg_base.bus.core.bounded_reader import BoundedReader, Source
from tg_base.bus.core.handoff import Handoff
from tg_base.bus.core.options import BusOptions
from tg_base.bus.core.send_window import SendWindow
from tg_base.bus.core.threaded_source import BlockingSource, ThreadedSource
from tg_base.bus.core.topic_name import check_log, is_persistent
from tg_base.bus.core.wait_queue import WaitQueue

__all__ = [
    "MAX_MESSAGE_BYTES",
    "BlockingSource",
    "BoundedReader",
    "Bus",
    "BusOptions",
    "Delivery",
    "Entry",
    "Handoff",
    "LogWriter",
    "SendWindow",
    "Source",
    "ThreadedSource",
    "WaitQueue",
    "check_log",
    "is_persistent",
]
