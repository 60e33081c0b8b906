"""Process <-> broker: one connection, in order in each direction, slow and held up as the world wants it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.simulated_process import SimulatedProcess


@dataclass
class Weather:
    """How the network is just now, for everybody; the simulation changes it.

    Attributes:
        latency: seconds that a message takes at least, in each direction.
        jitter: seconds that it may take longer.
        grid: arrivals are moved to multiples of this, so that several come at once.
        loss: how likely a message of a non-persistent topic is dropped by the broker.
        repetition: how likely a message is taken, or handed out, a second time.
        reordering: how likely one overtakes those before it.
    """

    latency: float = 0.0005
    jitter: float = 0.001
    grid: float = 0.0
    loss: float = 0.0
    repetition: float = 0.0
    reordering: float = 0.0


class Direction:
    """One way of a connection."""

    def __init__(self, process: "SimulatedProcess", arrive: Callable[..., None]) -> None:
        self.holds = 0
        self._simulator = process.simulator
        self._arrive = arrive
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._last = 0.0
        self._epoch = 0

    def send(self, call: Callable[..., None], *args: Any, ordered: bool = True) -> None:
        """Call it at the other end; in order, unless it belongs to a topic that promises none."""
        if self.holds:
            self._waiting.append((call, args))
            return
        simulator, weather = self._simulator, self._simulator.weather
        time = simulator.now + weather.latency + weather.jitter * simulator.random.random()
        if weather.grid:
            time = (int(time / weather.grid) + 1) * weather.grid
        if ordered or not (weather.reordering and simulator.random.random() < weather.reordering):
            time = self._last = max(self._last, time)
        else:
            time += simulator.random.random() * 0.05
        simulator.at(time, self._come, self._epoch, call, args)

    def _come(self, epoch: int, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if epoch == self._epoch:
            self._arrive(call, *args)

    def flush(self) -> None:
        """What was held up goes on, in its order."""
        for call, args in self.take():
            self.send(call, *args)

    def take(self) -> list[tuple[Callable[..., None], tuple[Any, ...]]]:
        """Everything that waits; it waits no more."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def wait(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        """It has come, and nobody looks."""
        self._waiting.append((call, args))

    def cut(self) -> None:
        """What is on its way is lost."""
        self._epoch += 1
        self._last = 0.0
        self._waiting.clear()


class SimulatedWire:
    """A process's connection to the broker, for one life."""

    def __init__(self, process: "SimulatedProcess") -> None:
        self.process = process
        self.outward = Direction(process, lambda call, *args: call(*args))
        self.inward = Direction(process, self._arrive)
        self.open = True

    def hold(self, *, outward: bool, inward: bool) -> Callable[[], None]:
        """Nothing arrives in these directions until what is returned is called; then it all does."""
        directions = [self.outward] * outward + [self.inward] * inward
        for direction in directions:
            direction.holds += 1

        def release() -> None:
            for direction in directions:
                direction.holds -= 1
                if self.open and not direction.holds:
                    direction.flush()

        return release

    def wake(self) -> None:
        """What came while nobody looked is looked at: at once, before the timers that are due, or soon after them."""
        if self.inward.holds:
            return
        if self.process.simulator.random.random() < 0.5:
            self.inward.flush()
        else:
            for call, args in self.inward.take():
                self.process.loop.call_soon(call, *args)

    def cut(self) -> None:
        """The process is dead: nothing arrives there any more; what has left it is on its way."""
        self.open = False
        self.inward.cut()

    def lose(self) -> None:
        """The broker is dead: nothing arrives in either direction."""
        self.outward.cut()
        self.inward.cut()

    def _arrive(self, call: Callable[..., None], *args: Any) -> None:
        process = self.process
        if not self.open:
            return
        if process.paused:
            self.inward.wait(call, args)
        else:
            process.loop.call_soon(call, *args)
            process.touch()
