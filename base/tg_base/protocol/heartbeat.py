"""Heartbeat intervals of both ends, and how long a silence counts as death."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeartbeatTiming:
    """All in seconds. Three missed heartbeats mean death; the extra half interval covers the transport.

    Attributes:
        interval: between two heartbeats.
        give_up: how long the bus may refuse a subscription while it answers pings; after that the process ends.
    """

    interval: float = 1.0
    give_up: float = 60.0

    @property
    def dead_after(self) -> float:
        """A peer that is silent for longer is considered dead."""
        return 3.5 * self.interval

    @property
    def doubt_after(self) -> float:
        """After this silence a process checks whether its own subscription is the cause (`Echo`)."""
        return 2.5 * self.interval

    @property
    def tick(self) -> float:
        """Interval of the checks for silence; a death is detected at most this much late."""
        return self.interval / 4
