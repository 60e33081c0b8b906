"""A configuration file -> what a kind of service gets to run it, without a command line."""

from tg_base.bus import Bus
from tg_base.config import ConfigWatcher
from tg_base.protocol import HeartbeatTiming
from tg_base.server import ServeContext


def context_of(file: ConfigWatcher, bus: Bus, timing: HeartbeatTiming | None = None) -> ServeContext:
    """The context of a file without overrides."""
    return ServeContext(file.config, bus, file.follow, timing)
