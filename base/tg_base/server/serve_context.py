"""Process -> its services: the configuration, its edits and the bus, as each kind of service gets them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self, TypeVar

from tg_base.bus import Bus
from tg_base.config import Config, ConfigWatcher, Prepare
from tg_base.protocol import HeartbeatTiming
from tg_base.server.host import Host

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class ServeContext:
    """What a kind of service may use to run.

    Attributes:
        config: the configuration of this process: the file with the overrides of the command line.
        bus: where the requests come from.
        follow: registers a function to be called at every edit of the file, until its block is left.
        timing: the heartbeat interval, and when a silent requestor counts as dead; None = the default.
        host: what all processors of the process share; None = each has its own.
    """

    config: Config
    bus: Bus
    follow: Callable[[Prepare], AbstractContextManager[None]]
    timing: HeartbeatTiming | None = None
    host: Host | None = None

    @classmethod
    def of(cls, file: ConfigWatcher, bus: Bus, timing: HeartbeatTiming | None = None) -> Self:
        """The context of a file without overrides."""
        return cls(file.config, bus, file.follow, timing)

    def follow_part(self, read: Callable[[Config], Part], use: Callable[[Part], None]) -> AbstractContextManager[None]:
        """At every edit of the file, call `use` with the result of `read`; if `read` raises, the edit is refused."""

        def prepare(config: Config) -> Callable[[], None]:
            part = read(config)
            return lambda: use(part)

        return self.follow(prepare)
