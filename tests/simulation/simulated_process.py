"""Simulator -> a process: a loop, a wire to the broker, a wall clock, and a life that may end at any time."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from tests.simulation.simulated_loop import SimulatedLoop, SimulatedTask
from tests.simulation.simulated_wire import SimulatedWire
from tests.simulation.simulator import Simulator
from tg_base.telemetry.trace import Ids, set_source

EPOCH = 1_700_000_000.0
"""What all wall clocks would show at the beginning, if they were right."""


class SimulatedProcess:
    """One process, through all its lives.

    Args:
        simulator: the world.
        name: for people.
        body: what it does in each of its lives, until `stopping`.
        skew: seconds by which its wall clock is ahead.

    Attributes:
        alive: whether it exists.
        paused: whether it is suspended.
        ready: whether its body has said so in this life.
        due: when it wants to run next, in the simulator's seconds.
        step_cost: seconds that one iteration of its loop takes.
    """

    def __init__(
        self, simulator: Simulator, name: str, body: Callable[["SimulatedProcess"], Awaitable[None]], skew: float
    ) -> None:
        self.simulator = simulator
        self.name = name
        self.skew = skew
        self.alive = False
        self.paused = False
        self.ready = False
        self.step_cost = 0.0
        self.lives = 0
        self.died: Callable[[SimulatedProcess], None] = lambda process: None
        self.failed: Callable[[SimulatedProcess, BaseException], None] = lambda process, error: None
        self._body = body
        self.due = float("inf")
        self._busy_until = 0.0
        self._dropped: list[SimulatedLoop] = []

    @property
    def wall(self) -> float:
        """What its wall clock shows."""
        return EPOCH + self.simulator.now + self.skew

    def touch(self) -> None:
        """Look when it wants to run next; to be called whenever something has come from outside of its loop."""
        if not self.alive or self.paused:
            self.due = float("inf")
        else:
            self.due = max(self.loop.due, self._busy_until)

    def start(self) -> None:
        """Begin a life; nothing is left of the one before."""
        if self.alive:
            return
        self.lives += 1
        self.alive, self.paused, self.ready = True, False, False
        self.loop = SimulatedLoop(self.simulator.clock, self.simulator.random.uniform(0, 10_000))
        self.wire = SimulatedWire(self)
        self._ids = Ids(Random(f"{self.simulator.seed} {self.name} {self.lives}").randbytes)
        self.stopping = asyncio.Event()
        self._main: SimulatedTask = self.loop.create_task(self._body(self))  # type: ignore[assignment, arg-type]
        self._main.add_done_callback(self._ended)
        self.touch()
        self.simulator.note(self.name, "starts", self.lives)

    def step(self) -> None:
        """Run one iteration of its loop."""
        set_source(self._ids)
        self.loop.step()
        if self.step_cost:
            self._busy_until = self.simulator.now + self.step_cost
        self.touch()

    def spawn(self, work: Callable[[], Any]) -> None:
        """Run a coroutine as a task of this life; nothing where it is dead."""
        if self.alive:
            self.loop.create_task(work())
            self.touch()

    def pause(self) -> None:
        """Suspend it, as SIGSTOP does."""
        if self.alive and not self.paused:
            self.simulator.note(self.name, "is suspended")
            self.paused = True
            self.touch()

    def resume(self) -> None:
        """Let it go on; what came meanwhile comes now, before or after the timers that are due."""
        if self.alive and self.paused:
            self.simulator.note(self.name, "goes on")
            self.paused = False
            self.wire.wake()
            self.touch()

    def kill(self) -> None:
        """End it at once, as SIGKILL does."""
        if self.alive:
            self.simulator.note(self.name, "is killed")
            self._end()

    def stop(self) -> None:
        """Ask it to end, as SIGTERM does."""
        if self.alive:
            self.simulator.note(self.name, "is asked to stop")
            self.loop.call_soon(self.stopping.set)
            self.touch()

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        error = None if task.cancelled() else task.exception()
        self.simulator.note(self.name, "ends", repr(error) if error else "")
        self._end()
        if error is not None:
            self.failed(self, error)

    def _end(self) -> None:
        self.alive = self.ready = False
        self._dropped.append(self.loop)
        self.loop.drop()
        self.wire.cut()
        self.touch()
        self.died(self)
