"""Trouble -> world: makes things go wrong, and right again."""

from collections.abc import Callable

from tests.simulation.scenario_terms import Fault, Trouble
from tests.simulation.simulated_broker import Message
from tests.simulation.simulated_process import EPOCH, SimulatedProcess
from tests.simulation.world import TOPICS, World
from tg_schema.errors import BusError

End = Callable[[], None] | None
"""Makes it right again; None = there is nothing to make right."""
NOTICED = 0.05
"""Seconds until a broker notices that a connection was closed."""
UNNOTICED = 60.0
"""Seconds until it notices that nobody answers."""
RECONNECTED = 1.0
"""Seconds at most until a client of a broker that is back has noticed."""


class Faults:
    """Everything that can go wrong in a world.

    Args:
        world: the world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._simulator = world.simulator
        self._random = world.simulator.random
        self._begin: dict[Fault, Callable[[Trouble, SimulatedProcess], End]] = {
            "pause": self._pause,
            "hold-in": self._hold,
            "hold-out": self._hold,
            "hold": self._hold,
            "kill": self._kill,
            "lose": self._kill,
            "stop": self._stop,
            "broker": self._broker,
            "reader": self._reader,
            "refuse": self._reader,
            "poison": self._poison,
            "slow": self._slow,
            "weather": self._weather,
        }

    def happen(self, trouble: Trouble) -> None:
        """Begin, and see to the end."""
        process = self._world.target(trouble)
        self._simulator.note("FAULT", trouble.fault, process.name, f"{trouble.seconds:.3f}", f"{trouble.amount:.3f}")
        end = self._begin[trouble.fault](trouble, process)
        if end is not None:
            self._simulator.after(trouble.seconds, end)

    def _pause(self, trouble: Trouble, process: SimulatedProcess) -> End:
        process.pause()
        return process.resume

    def _hold(self, trouble: Trouble, process: SimulatedProcess) -> End:
        outward, inward = trouble.fault != "hold-in", trouble.fault != "hold-out"
        return process.wire.hold(outward=outward, inward=inward) if process.alive else None

    def _kill(self, trouble: Trouble, process: SimulatedProcess) -> End:
        if process.alive:
            bus = self._world.buses.get(process)
            process.kill()
            if bus is not None:
                self._simulator.after(NOTICED if trouble.fault == "kill" else UNNOTICED, bus.disconnect)
        return process.start

    def _stop(self, trouble: Trouble, process: SimulatedProcess) -> End:
        process.stop()
        return lambda: self._start_again(process)

    def _broker(self, trouble: Trouble, process: SimulatedProcess) -> End:
        if not self._world.broker.up:
            return None
        self._world.broker.crash(forgets=trouble.amount)
        return self._restart_broker

    def _slow(self, trouble: Trouble, process: SimulatedProcess) -> End:
        process.step_cost = 0.02 * trouble.amount
        return lambda: setattr(process, "step_cost", self._world.scenario.step)

    def _start_again(self, process: SimulatedProcess) -> None:
        """When it has ended; a process that is asked to stop takes its time."""
        if process.alive:
            self._simulator.after(0.1, self._start_again, process)
        else:
            process.start()

    def _restart_broker(self) -> None:
        self._world.broker.start()
        for process in self._world.processes:
            if process.alive:
                process.wire.lose()
                self._simulator.after(self._random.random() * RECONNECTED, self._reconnect, process, process.wire)

    def _reconnect(self, process: SimulatedProcess, wire: object) -> None:
        if not process.alive or process.wire is not wire or not self._world.broker.up:
            return
        if process.paused:
            self._simulator.after(0.1, self._reconnect, process, wire)
        elif process in self._world.buses:
            self._world.buses[process].reconnect()
            self._world.disturbed_at = self._simulator.now

    def _reader(self, trouble: Trouble, process: SimulatedProcess) -> End:
        bus = self._world.buses.get(process)
        if process.alive and bus is not None and bus.readers:
            reader = bus.readers[int(trouble.amount * 1e6) % len(bus.readers)]
            self._simulator.note(process.name, "loses its reader of", reader.topic)
            reader.detach()
            reader.end(BusError("the subscription is gone") if self._random.random() < 0.7 else None)
            process.touch()
            if trouble.fault == "refuse":
                self._world.broker.refused.add(reader.topic)
                return lambda: self._world.broker.refused.discard(reader.topic)
        return None

    def _poison(self, trouble: Trouble, process: SimulatedProcess) -> End:
        world = self._world
        topics = [TOPICS.presence]
        topics += [requestor._inbox.topic for requestor in world.requestors.values() if hasattr(requestor, "_inbox")]
        topics += [TOPICS.control(host.name) for host in world.hosts.values()]
        processors = [processor for some in world.processors.values() for processor in some]
        topics += [route.request for processor in processors for route in processor._routes]
        topics += [TOPICS.announce]
        topic = topics[int(trouble.amount * 1e6) % len(topics)]
        body, properties = self._random.choice(POISONS)
        self._simulator.note("broker", "is given poison", topic, properties)
        world.broker.take(topic, Message(body, properties, EPOCH + self._simulator.now))
        return None

    def _weather(self, trouble: Trouble, process: SimulatedProcess) -> End:
        weather = self._simulator.weather
        weather.loss = trouble.amount * 0.5
        weather.repetition = self._random.random() * 0.2
        weather.reordering = self._random.random() * 0.3
        weather.jitter += self._random.random() * 0.1

        def end() -> None:
            weather.loss = weather.repetition = weather.reordering = 0.0
            weather.jitter = self._world.scenario.jitter

        return end


_NINES = "9" * 400
POISONS: tuple[tuple[bytes, dict[str, str] | None], ...] = (
    (b"{}", None),
    (b"\xff\xfe", {}),
    (b"{}", {"id": "poison"}),
    (b"{}", {"id": "poison", "deadline": _NINES}),
    (b"{}", {"id": "poison", "attempt": _NINES, "deadline": "1e9"}),
    (b"{}", {"id": "poison", "deadline": "-" + _NINES, "attempt": "-1"}),
    (b"[]", {"processor": "nobody", "link": "nobody/x", "seq": "0"}),
    (b"[]", {"processor": "nobody", "link": "nobody/" + _NINES, "seq": _NINES}),
    (b"[[1]]", {"processor": "nobody", "link": "nobody/1", "seq": "0"}),
    (b'{"type":"heartbeat"}', {"processor": "", "link": "", "seq": ""}),
    (b'{"type":"cancel","streams":[["x",1]],"ttl":1e308}', {}),
)
"""Bodies and properties that a stranger may write."""
