"""World -> whether anything goes wrong for some processes in a period: only then a promise holds to the second."""

from collections.abc import Collection, Container
from typing import TYPE_CHECKING, Final

from tests.simulation.scenario_terms import Trouble
from tests.simulation.simulated_process import SimulatedProcess

if TYPE_CHECKING:
    from tests.simulation.world import World

AFTER: Final = 5.0
"""Seconds after a fault in which what came of it may still be at work."""
EVERYBODY: Final = frozenset({"broker", "weather", "refuse"})
"""Faults that all processes suffer from."""
HARMLESS: Final = frozenset({"poison"})
"""Faults that nobody may suffer from."""


class Calm:
    """What goes wrong in a world, and for whom.

    Args:
        world: the world.
    """

    def __init__(self, world: "World") -> None:
        self._world = world

    def holds(
        self, processes: Collection[SimulatedProcess], since: float, until: float, *, but: Container[str] = ()
    ) -> bool:
        """Whether nothing goes wrong for these processes, nor went wrong shortly before, except some faults."""
        ended = ((one, time) for one, time in self._world.ended if one in processes)
        return not self.troubles(processes, since, until, but=but) and not any(
            since - AFTER <= time <= until for _, time in ended
        )

    def troubles(
        self, processes: Collection[SimulatedProcess], since: float, until: float, *, but: Container[str] = ()
    ) -> list[Trouble]:
        """What goes wrong for these processes in that time, or went wrong shortly before."""
        return [
            trouble
            for trouble in self._world.scenario.troubles
            if trouble.fault not in but
            and trouble.fault not in HARMLESS
            and trouble.time <= until
            and since <= trouble.time + trouble.seconds + AFTER
            and (trouble.fault in EVERYBODY or self._world.target(trouble) in processes)
        ]
