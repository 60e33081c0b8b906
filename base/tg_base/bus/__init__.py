"""Publisher -> subscriber: the bus, chosen by URL. Others import from here; drivers and core are inside."""

from tg_base.bus.core import MAX_MESSAGE, Bus, BusOptions, Delivery, Handover
from tg_base.bus.open import open_bus

__all__ = [
    "MAX_MESSAGE",
    "Bus",
    "BusOptions",
    "Delivery",
    "Handover",
    "open_bus",
]
