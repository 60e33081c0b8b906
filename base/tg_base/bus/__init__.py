"""Publisher -> subscriber: the bus, chosen by URL. Others import from here; drivers and core are inside."""

from tg_base.bus.core import MAX_MESSAGE_BYTES, Bus, BusOptions, Delivery, Entry, LogWriter
from tg_base.bus.open import find_bus, open_bus

__all__ = [
    "MAX_MESSAGE_BYTES",
    "Bus",
    "BusOptions",
    "Delivery",
    "Entry",
    "LogWriter",
    "find_bus",
    "open_bus",
]
