"""A fault as data -> the text of a file with the fault in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SIMULATION: Final = "tests.simulation"
POOLS: Final = "tests.simulation.pool_world"
"""What looks for a fault in worlds of chance: modules that are run."""


class Stale(Exception):
    """What a fault replaces is not in the code, or not just once: the list must follow the code."""


@dataclass(frozen=True)
class Place:
    """A text in a file, and what is put in its place.

    Attributes:
        file: from the repository's root on.
        standing: the text that stands there, just once.
        planted: what is put in its place.
    """

    file: str
    standing: str
    planted: str

    def plant(self, text: str) -> str:
        """The file's text with the fault in it.

        Raises:
            Stale: the list does not fit the code.
        """
        if (times := text.count(self.standing)) != 1:
            raise Stale(f"this stands {times} times in {self.file}:\n{self.standing}")
        return text.replace(self.standing, self.planted)


@dataclass(frozen=True)
class Fault:
    """One plausible mistake.

    Attributes:
        name: what the code does wrong.
        file, standing, planted: as those of a `Place`.
        found_by: `SIMULATION`, `POOLS`, or the test that fails.
        worlds: of the simulation: those of them that show it.
        also: further places of the same mistake.
        until: the promises that it breaks, of which any one counts.
        seed: of a world that found it, which is tried first.
    """

    name: str
    file: str
    standing: str
    planted: str
    found_by: str = SIMULATION
    worlds: str = "any"
    also: tuple[Place, ...] = ()
    until: str = "any"
    seed: int | None = None

    @property
    def places(self) -> tuple[Place, ...]:
        """All that is changed."""
        return (Place(self.file, self.standing, self.planted), *self.also)
