"""How often both ends say that they live, and when silence means death."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Liveness:
    """Seconds. Three missed beats mean dead; the half covers the way."""

    beat: float = 1.0

    @property
    def dead_after(self) -> float:
        """Silence of this many seconds is death."""
        return 3.5 * self.beat

    @property
    def tick(self) -> float:
        """How often silence is looked for; death is noticed so much late at most."""
        return self.beat / 4
