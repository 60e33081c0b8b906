"""World -> violations: what must hold at any time, and what must hold again when everything has come to rest."""

import asyncio
from typing import cast

from tests.simulation.excuses import Excuses
from tests.simulation.ledger import Stream
from tests.simulation.scripted_model import Generation
from tests.simulation.simulated_loop import SimulatedTask
from tests.simulation.simulated_process import SimulatedProcess
from tests.simulation.world import World

END = 5.0
"""Seconds within which a stream ends after the last sign of life, or the last fault."""
LEFT = 1.0
"""Seconds within which a model stops after its caller has left, and after which a cancel that was lost is repeated."""
WAY = 0.4
"""Seconds that the message of it may take, from any distance of these worlds, and its processes to act on it."""
BOUND = 1.2
"""Seconds after which a gateway knows which process has begun a request."""
MOST_LOST = 3
"""Messages between two processes that may be lost without a cancel being lost for good."""
SLACK = 0.6
"""Seconds that looking so rarely, and the way of a message, may add."""
LOOK = 0.25
MOST_CANCELS = 10
"""Attempts at a stream that a processor may have been told to cancel: a stream is asked again every two seconds or less
often, and a processor remembers a cancel until the stream's deadline."""
PUBLISHED = 6.0
"""Seconds after which no task may be left that only publishes a message."""
SETTLED = 6.0
"""Seconds after the last fault from which on a request is not refused for its sake."""
REST = 6.0
"""Seconds after the last stream's end in which cancels are no longer repeated, and nothing runs."""
CLOSED = 36.0
"""Seconds after which idle links are closed."""


class Judge:
    """Looks at a world while it goes on.

    Args:
        world: the world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = world.ledger
        self._scenario = world.scenario
        self._excuses = Excuses(world)
        self._late: set[str] = set()
        self.over_at: float | None = None
        self.rest = CLOSED if world.simulator.random.random() < 0.05 else REST

    def look(self) -> None:
        """Once in a while: is anybody late?"""
        now = self._world.simulator.now
        for name, stream in self._ledger.streams.items():
            if stream.ended is None and name not in self._late and now - self._since(stream) > END + SLACK:
                self._late.add(name)
                begun = self._ledger.generations[name]
                self._ledger.broken("ends" if begun else "starves", f"{name} has not ended, nor shown a sign of life")
            for generation in self._needless(name, stream):
                if now - max(self.quiet, stream.ended_at, generation.begun) > END + SLACK:
                    self._ledger.broken("leak", f"{name}g{generation.number} goes on although nobody waits for it")
                    self._late.add(name)
        if not self._asking():
            self.over_at = self.over_at or now
        else:
            self.over_at = None

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        now = self._world.simulator.now
        if self._late or self._ledger.violations:
            return True
        return self.over_at is not None and now > max(self.over_at, self.quiet) + self.rest

    @property
    def quiet(self) -> float:
        """When the last fault, or what came of it, has ended."""
        return max(self._scenario.quiet, self._world.disturbed_at)

    def _asking(self) -> bool:
        later = any(asked.time > self._world.simulator.now for asked in self._scenario.asked)
        return later or any(stream.ended is None for stream in self._ledger.streams.values())

    def _needless(self, name: str, stream: Stream) -> list[Generation]:
        """Generations that should stop: all of a stream that has ended, and all but the newest of one that goes on."""
        running = [one for one in self._ledger.generations[name] if one.open]
        return running if stream.ended is not None else running[:-1]

    def _since(self, stream: Stream) -> float:
        """The last moment at which this stream was excused."""
        name = stream.asked.script.name
        signs = [self.quiet, stream.sign]
        signs += [one.alive_until for one in self._ledger.generations[name]]
        if not any(one.open for one in self._ledger.generations[name]):
            signs += self._busy(stream)
        if stream.asked.dawdles:
            signs.append(self._world.simulator.now)
        return max(signs)

    def _busy(self, stream: Stream) -> list[float]:
        """Until when each live model process had no slot for it; nothing where one had."""
        now = self._world.simulator.now
        busy = []
        for process in self._world.models:
            load = self._world.loads.get((process, stream.asked.flow))
            if process.ready and load is not None:
                load.look(now)
                busy.append(max(load.full_at, load.began_at.get(stream.asked.flow, 0.0)))
        return [min(busy)] if busy else [now]

    def finish(self) -> None:
        """At the end of a run in which nothing was broken so far."""
        for stream in self._ledger.streams.values():
            self._check_end(stream)
            self._check_left(stream)
        if left := self._world.broker.left():
            self._ledger.broken("rest", f"messages are left in {left}")
        for process in self._world.processes:
            if process.ready:
                self._check_rest(process)
        for generations in self._ledger.generations.values():
            for generation in generations:
                self._check_recorded(generation)

    def _check_end(self, stream: Stream) -> None:
        asked, script = stream.asked, stream.asked.script
        well = stream.ended in {"whole", "left", "dead"}
        untroubled = stream.began >= self.quiet + SETTLED or self._scenario.mood in {"calm", "mild"}
        lost = any(trouble.fault == "lose" for trouble in self._scenario.troubles)
        own_fault = script.fails or script.size or asked.timeout < 60 or asked.dawdles
        if untroubled and not well and not own_fault and not lost:
            self._ledger.broken("needless-error", f"{script.name} ended as {stream.ended}: {stream.message}")
        elif not (well or own_fault or script.failing) and (promise := self._excuses.find_broken(stream)):
            self._ledger.broken(promise, f"{script.name} ended as {stream.ended}: {stream.message}")

    def _check_left(self, stream: Stream) -> None:
        """Whoever leaves stops the model: within a second, and one more for each message that was lost meanwhile."""
        if stream.ended not in {"left", "timeout"}:
            return
        for one in self._ledger.generations[stream.asked.script.name]:
            process, until = cast("SimulatedProcess", one.process), one.alive_until
            since = max(stream.ended_at, one.begun)
            concerned = (stream.process, process, *self._world.helpers)
            if not self._world.calm.holds(concerned, stream.ended_at, until, but=("weather",)):
                continue
            # Whose process has said long ago that it works on it is the one that is told, if that was not lost.
            said = self._world.lost((stream.inbox,), one.begun, stream.ended_at) == 0
            bound = said and stream.ended_at - one.begun > BOUND
            topics = (one.control,) if bound else (one.control, stream.inbox)
            lost = self._world.lost(topics, stream.ended_at - LEFT, until)
            if until - since > LEFT * (1 + lost) + WAY and lost <= MOST_LOST:
                text = f"{one.script.name}g{one.number} went on for {until - since:.2f} s after its caller had left"
                self._ledger.broken("leak", text)

    def _check_recorded(self, generation: Generation) -> None:
        """Each call of a model has its record of usage, unless both who knew of it have died."""
        calls = self._ledger.recorded[generation.key]
        text = f"{generation.script.name}g{generation.number} has {len(calls)} records of usage"
        if len(calls) > 1:
            self._ledger.broken("usage-twice", text)
        elif not calls:
            ended = {process for process, time in self._world.ended if time >= generation.begun}
            askers = {*self._world.gateways, *self._world.helpers}
            if generation.process not in ended or not ended & askers:
                self._ledger.broken("usage-lost", text)

    def _check_rest(self, process: SimulatedProcess) -> None:
        world = self._world
        left: list[object] = []
        requestor, host = world.requestors.get(process), world.hosts.get(process)
        if requestor is not None:
            left += [*requestor._streams, *requestor._attempts._asking, *requestor._sender._tasks]
            left += [key for key, until in requestor._controls._cancelled.items() if until < requestor._clock() - 2]
        links = 0
        left += [key for processor in world.processors.get(process, ()) for key in processor._running]
        if host is not None:
            left += [*host.running, *host.bodies._bodies]
            links = len([*host.links])
            left += [link.name for link in host.links if not link.idle]
            if len(host.cancelled) > len(self._scenario.asked) * MOST_CANCELS:
                left += [f"{len(host.cancelled)} cancelled keys"]
        if left:
            self._ledger.broken("rest", f"{process.name} still keeps {left}")
        before = process.loop.time() - PUBLISHED
        tasks = [task for task in asyncio.all_tasks(process.loop) if not task.done() and _born(task) < before]
        # A link has a task of its own and one that sends; idle ones go after a while.
        if len(tasks) > world.tasks[process] + links or (self.rest == CLOSED and links):
            names = sorted(getattr(task.get_coro(), "__qualname__", "?") for task in tasks)
            self._ledger.broken("rest", f"{process.name} still has {links} links and the tasks {names}")


def _born(task: asyncio.Task[object]) -> float:
    """When a process began the task, by its own clock."""
    assert isinstance(task, SimulatedTask)
    return task.born
