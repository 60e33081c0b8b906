"""A process -> `/ready` at its metrics port: what it still lacks."""

from typing import Final

from tg_base.bus import Bus
from tg_base.protocol import answers
from tg_base.server.host import Host

PING_SECONDS: Final = 2.0
"""Timeout of a ping to the bus in seconds."""


class Readiness:
    """The state of one process.

    Attributes:
        stage: whether it starts or ends, as a sentence; "" = it serves.
        bus: its bus, once it is open.
        host: the serving end of its services; None = it has none, or not yet.
    """

    def __init__(self) -> None:
        self.stage = "the process is starting"
        self.bus: Bus | None = None
        self.host: Host | None = None

    async def find_missing(self) -> tuple[str, ...]:
        """What the process lacks, in sentences; empty = it is ready."""
        missing = [self.stage] if self.stage else []
        if self.bus is not None and not await answers(self.bus, PING_SECONDS):
            missing.append("the bus does not answer")
        if self.host is not None:
            missing += self.host.faults
        return tuple(missing)
