"""Process -> its services: the configuration, the bus, and the edits of the file, as each kind of service gets them."""

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
        config: what holds in this process: the file, with the changes of the command line.
        bus: where the requests come from.
        follow: has a function called at every edit of the file, until its block is left.
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
        """Of a file that nothing changes but its edits."""
        return cls(file.config, bus, file.follow, timing)

    def follow_part(self, read: Callable[[Config], Part], use: Callable[[Part], None]) -> AbstractContextManager[None]:
        """At every edit of the file, have `use` called with what `read` makes of it; an error of `read` refuses it."""

        def prepare(config: Config) -> Callable[[], None]:
            part = read(config)
            return lambda: use(part)

        return self.follow(prepare)
