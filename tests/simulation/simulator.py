"""Seed -> time, chance and order: what happens next in a simulated world."""

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.simulated_wire import Weather

if TYPE_CHECKING:
    from tests.simulation.simulated_process import SimulatedProcess

MAX_STEPS = 60_000
"""Iterations of all loops together; a run that needs more goes in circles."""


class Endless(Exception):
    """The code goes in circles without time passing."""


class Simulator:
    """One world.

    Attributes:
        now: seconds since its beginning.
        random: where every accident comes from.
        weather: how the network is just now.
        over: set by who has seen enough.
        trace: what happened, where somebody wants to know; None = nobody does.
    """

    def __init__(self, seed: int, *, trace: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.now = 0.0
        self.random = Random(seed)
        self.weather = Weather()
        self.processes: list[SimulatedProcess] = []
        self.trace = trace
        self.steps = 0
        self.over = False
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = count()

    def clock(self) -> float:
        """Now."""
        return self.now

    def at(self, time: float, call: Callable[..., object], *args: Any) -> None:
        """Call it then."""
        heapq.heappush(self._events, (time, next(self._numbers), call, args))

    def after(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        """Call it in so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), call, args))

    def run(self) -> None:
        """Let the world go on until it is `over`.

        Raises:
            Endless: time passes no more.
        """
        events, processes = self._events, self.processes
        while not self.over:
            while events and events[0][0] <= self.now:
                _, _, call, args = heapq.heappop(events)
                call(*args)
            now = self.now
            ready = [process for process in processes if process.due <= now]
            if not ready:
                self.now = min(*[process.due for process in processes], events[0][0])
                continue
            process = ready[0] if len(ready) == 1 else ready[int(self.random.random() * len(ready))]
            process.step()
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise Endless

    def note(self, who: str, what: str, *more: object) -> None:
        """One line of the trace."""
        if self.trace is not None:
            self.trace(f"{self.now:10.6f} {who:<10} {what} {' '.join(map(str, more))}".rstrip())
