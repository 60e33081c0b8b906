"""Stream that ended in an error -> whether any fault excuses that, in worlds where processes die and are silent."""

from typing import TYPE_CHECKING, Final

from tests.simulation.ledger import Stream
from tests.simulation.scenario_terms import Trouble
from tests.simulation.scripted_model import Generation
from tests.simulation.themes import MODELS

if TYPE_CHECKING:
    from tests.simulation.world import World

GRACE: Final = 2.0
"""Seconds that a process which is asked to stop gives its streams."""
MARGIN: Final = 0.5
"""Seconds by which an answer ends before that, whatever its process and its way cost, if it must come whole."""
DEATHS: Final = 2
"""Processes that may die over a request, or be silent, before it may end in an error of which nothing was shown."""


class Excuses:
    """Looks for what may have ended a stream.

    Args:
        world: the world.
    """

    def __init__(self, world: "World") -> None:
        self._world = world

    def find_broken(self, stream: Stream) -> str | None:
        """The promise that the error of this stream breaks; None = a fault excuses it."""
        world, since, until = self._world, stream.began, stream.ended_at
        # What asks on behalf of a caller suffers from every fault of its own process and of the models'.
        asking = (stream.process,) if stream.asked.kind in MODELS else (stream.process, *world.helpers, *world.models)
        if stream.asked.permit or not world.calm.holds(asking, since, until):
            return None
        troubles = world.calm.troubles(world.models, since, until)
        touched = {world.target(trouble) for trouble in troubles}
        begun = [one for one in world.ledger.generations[stream.asked.script.name] if one.process in touched]
        if any(trouble.fault == "stop" for trouble in troubles):
            return None if self._drained(stream, troubles, begun) else "drain"
        if stream.shown:
            return None if begun else "needless-error"
        if begun and any(trouble.fault == "hold-in" for trouble in troubles):
            # A process that hears nothing takes its requestor for dead, and its word of that still arrives.
            return None
        # Of two processes, one is enough to answer; it had time to begin only where nobody else died over it.
        return None if len(troubles) >= DEATHS or touched >= {*world.models} else "retried"

    def _drained(self, stream: Stream, troubles: list[Trouble], begun: list[Generation]) -> bool:
        """Whether a process that was asked to stop had to end it; other faults beside that excuse anything."""
        if len(troubles) > 1:
            return True
        if not begun:
            return {self._world.target(troubles[0])} >= {*self._world.models}
        end = troubles[0].time + GRACE - MARGIN
        return any(not one.finished and one.begun + one.script.seconds > end for one in begun)
