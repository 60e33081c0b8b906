"""How often both ends say that they live, and when silence means death."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeartbeatTiming:
    """Seconds. Three missed beats mean dead; the half covers the way.

    Attributes:
        interval: seconds between two heartbeats.
        give_up: how long the bus may refuse a subscription while it answers pings; then its process ends.
    """

    interval: float = 1.0
    give_up: float = 60.0

    @property
    def dead_after(self) -> float:
        """Silence of this many seconds is death."""
        return 3.5 * self.interval

    @property
    def doubt_after(self) -> float:
        """Silence of this many seconds makes a process ask whether it is itself that hears nothing."""
        return 2.5 * self.interval

    @property
    def tick(self) -> float:
        """How often silence is looked for; death is noticed so much late at most."""
        return self.interval / 4
