"""Scenario -> processes, of which some are of the part `jobs`: kept streams, and readers that are cut and go on."""

import asyncio
import json
import re
from collections.abc import Awaitable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, cast

from typing_extensions import override

from tests.simulation.judge import Judge
from tests.simulation.scenario_terms import Asked, Fault, Scenario, Trouble
from tests.simulation.scripted_model import Script
from tests.simulation.simulated_process import SimulatedProcess
from tests.simulation.simulator import Simulator
from tests.simulation.waiting_world import GATEWAY, LIMITS, MOUNTS, SETTLED, UNTIL_READY, WaitingWorld
from tests.simulation.world import CONFIG, TOPICS, World
from tg_base.bus import MAX_MESSAGE_BYTES
from tg_base.client import Requestor
from tg_base.client.shared_time import SharedTime
from tg_base.protocol import Presence
from tg_base.server import Host
from tg_gateway.access import Payers, RateLimits
from tg_gateway.dialects import Ask, Call, Catalogue, KeptAnswers, KeptStreams, StreamedAnswer
from tg_gateway.jobs import AttemptPauses, JobLogs, JobQueue, JobRuns
from tg_gateway.jobs.log import JobLog
from tg_gateway.relay import Relay
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TEXT_COMPLETION, TgError, encode

KEPT: Final = "1h"
HELD: Final = 35.0
"""Seconds after which a processor holds nothing for a requestor that has left it to another one."""
JOBS: Final = 2
"""Processes of the part `jobs`; faults hit one of them or a gateway."""
PATIENCE: Final = 12
"""Times that a reader which got an error reads on."""
SAFE: Final[frozenset[Fault]] = frozenset({"kill", "stop"})
"""Faults that hit gateways and the part `jobs` alone."""
_EVENT: Final = re.compile(rb"id: ([0-9]+)\ndata: (.*)\n\n")
_DOOR: Final = "/api/v1/text-completion"


@dataclass(eq=False)
class Reader:
    """One client of a kept stream, through all of its connections.

    Attributes:
        last: the number of its last event.
        shown: the text of its events.
        ended: how the stream has ended for it: "whole", or an error's type; None = it reads on.
        failures: connections that ended with an error.
        connections: how many there were.
    """

    last: int = -1
    shown: str = ""
    ended: str | None = None
    failures: int = 0
    connections: int = 0


@dataclass(eq=False)
class KeptStream:
    """A stream that is kept.

    Attributes:
        asked: the request.
        name: the stream's.
        events: by number, as the first reader got them.
        readers: the clients.
    """

    asked: Asked
    name: str
    events: dict[int, bytes] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)


class KeptWorld(WaitingWorld):
    """A world with processes of the part `jobs`.

    Attributes:
        streams: by the request's name.
    """

    def __init__(self, simulator: Simulator, scenario: Scenario) -> None:
        super().__init__(simulator, scenario)
        self.streams: dict[str, KeptStream] = {}
        self.helpers += [self._process(f"jobs{number}", self._jobs, iter((0.0,))) for number in range(JOBS)]
        self._random = Random(f"readers {simulator.seed}")

    @override
    def target(self, trouble: Trouble) -> SimulatedProcess:
        asking = self.processes if trouble.fault not in SAFE else [*self.helpers, *self.helpers, *self.gateways]
        return asking[trouble.target % len(asking)]

    async def _jobs(self, process: SimulatedProcess) -> None:
        bus = self._bus(process)
        time = SharedTime(lambda: process.wall, process.loop.time)
        requestor = self.requestors[process] = Requestor(bus, TOPICS, time=time)
        async with AsyncExitStack() as stack:
            host = self.hosts[process] = await stack.enter_async_context(Host(bus, TOPICS))
            await stack.enter_async_context(requestor)
            relay = Relay(requestor, 60.0, RateLimits(GATEWAY, process.loop.time), {}, Payers(GATEWAY))
            draw = Random(f"{self.simulator.seed} {process.name} {process.lives}").random
            logs = JobLogs(bus, TOPICS, time, silence=LIMITS.silence, pauses=AttemptPauses(time, draw))
            catalogue = Catalogue(CONFIG.routes(TEXT_COMPLETION.name), requestor.presence.serving, {})
            name = host.name_processor()
            queue = JobQueue(requestor, JobRuns(relay, logs, LIMITS), catalogue, LIMITS, name=name)
            await stack.enter_async_context(queue)
            topics = tuple(map(TOPICS.jobs, catalogue.flows))
            host.add(name, lambda: Presence(name, topics, LIMITS.all_background, queue.in_flight))
            await host.announce()

            async def leave() -> None:
                host.remove(name)
                await host.announce()
                await queue.drain()
                await relay.drain(2.0)

            stack.push_async_callback(leave)
            await self._serve(process, stack)

    @override
    async def _call(self, process: SimulatedProcess, asked: Asked) -> None:
        if asked.kind != "kept":
            await super()._call(process, asked)
            return
        gate, name = self._gates[process], asked.script.name
        streams = self._streams(process)
        asking = await self._parse_native(gate.catalogue, asked)
        background = streams.keep(asking.writer, "native", KEPT)
        try:
            await gate.jobs.put(asking, background, AccessLogEntry("background", name))
        except TgError as error:
            self.simulator.note(process.name, "does not keep", name, error.message)
            return
        self.simulator.note(process.name, "keeps", name, background.name)
        kept = self.streams[name] = KeptStream(asked, background.name)
        kept.readers += [Reader() for _ in range(self._random.choice((1, 2, 4)))]
        for reader in kept.readers:
            self._connect(kept, reader)

    def _streams(self, process: SimulatedProcess) -> KeptStreams:
        restore = {mount.door: mount.dialect.restore for mount in MOUNTS}
        return KeptStreams(restore, lambda: process.wall)

    async def _parse_native(self, catalogue: Catalogue, asked: Asked) -> Ask:
        mount = next(one for one in MOUNTS if one.path == _DOOR)
        body = encode({"prompt": asked.script.line, "streaming": True})
        call = Call(mount.operation, catalogue, {}, {}, {}, asked.script.name, body)
        parsed = mount.dialect.configure(GATEWAY).parse(call)
        return cast("Ask", await parsed if isinstance(parsed, Awaitable) else parsed)

    def _connect(self, kept: KeptStream, reader: Reader) -> None:
        """By any gateway that is there."""
        ready = [process for process in self.gateways if process.ready and process in self._gates]
        if not ready:
            self.simulator.after(0.3, self._connect, kept, reader)
            return
        process = self._random.choice(ready)
        cut = self._random.choice((0, 1, 3, 1000))
        reader.connections += 1
        connection = reader.connections
        process.spawn(lambda: self._read_kept(process, kept, reader, connection, cut))
        self.simulator.after(0.5, self._look_after, process, process.lives, kept, reader, connection)

    def _look_after(
        self, process: SimulatedProcess, life: int, kept: KeptStream, reader: Reader, connection: int
    ) -> None:
        """A client whose gateway has died, or says nothing, asks another one."""
        if reader.ended is not None or reader.connections != connection:
            return
        if process.lives == life and process.alive and not process.paused:
            self.simulator.after(0.5, self._look_after, process, life, kept, reader, connection)
        else:
            self._connect(kept, reader)

    async def _read_kept(
        self, process: SimulatedProcess, kept: KeptStream, reader: Reader, connection: int, cut: int
    ) -> None:
        """One connection, which is cut after so many events."""
        own: KeptAnswers = self._gates[process].jobs.store.of(None, bounded=False)
        try:
            answer = await self._streams(process).read(own, kept.name, reader.last)
            if isinstance(answer, StreamedAnswer):
                async with aclosing(answer.parts) as parts:
                    async for part in parts:
                        if reader.connections != connection:
                            return
                        for number, data in _EVENT.findall(part):
                            self._show(kept, reader, int(number), data)
                            cut -= 1
                        if cut < 0 and reader.ended is None:
                            break
            elif reader.ended is None:
                self.ledger.broken("prefix", f"{kept.asked.script.name} ends without its last event")
        except TgError as error:
            reader.failures += 1
            self.simulator.note(process.name, "cannot read", kept.name, error.type, error.message)
            if reader.ended is None and reader.failures > PATIENCE:
                reader.ended = error.type
        if reader.ended is None and reader.connections == connection:
            await asyncio.sleep(0.2 + reader.failures)
            process.simulator.after(0.0, self._connect, kept, reader)

    def _show(self, kept: KeptStream, reader: Reader, number: int, data: bytes) -> None:
        name, event = kept.asked.script.name, json.loads(data)
        if number != reader.last + 1:
            self.ledger.broken("prefix", f"{name}: event {number} comes behind {reader.last}")
        if kept.events.setdefault(number, data) != data:
            self.ledger.broken("prefix", f"{name}: event {number} is {data!r} and {kept.events[number]!r}")
        reader.last = number
        reader.shown += event.get("response") or ""
        texts = [one.script.text(one.number) for one in self.ledger.generations[name]]
        if not any(one.startswith(reader.shown.rstrip()) for one in texts):
            self.ledger.broken("prefix", f"{name} shows {reader.shown[-200:]!r}, which no model has said")
        if event.get("end_of_stream"):
            reader.ended = event["error"]["type"] if event.get("error") else "whole"
            if reader.ended == "whole" and reader.shown.rstrip() not in [one.rstrip() for one in texts]:
                self.ledger.broken("prefix", f"{name} ends well although only {reader.shown!r} was shown")

    def log_of_stream(self, kept: KeptStream) -> JobLog:
        """What the broker has of a stream."""
        return JobLog(self.broker.logs.read(TOPICS.kept(kept.name)))


class KeptJudge(Judge):
    """Looks at kept streams, too.

    Args:
        world: the world.
    """

    def __init__(self, world: KeptWorld) -> None:
        super().__init__(world)
        self._kept_world = world
        self.rest = max(self.rest, HELD)

    @property
    @override
    def over(self) -> bool:
        world, now = self._kept_world, self._kept_world.simulator.now
        reading = any(reader.ended is None for kept in world.streams.values() for reader in kept.readers)
        if reading and now < max(self.quiet, *(one.time for one in world.scenario.asked)) + SETTLED:
            self.over_at = now
        return super().over

    @override
    def finish(self) -> None:
        world = self._kept_world
        faults = [trouble.fault for trouble in world.scenario.troubles]
        spared = SAFE.issuperset(faults)
        # The last process of the part `jobs` ends what it cannot hand over.
        survives = spared and ("stop" not in faults or len(faults) == 1)
        for name, kept in world.streams.items():
            ends, begun = {reader.ended for reader in kept.readers}, len(world.ledger.generations[name])
            if None in ends:
                world.ledger.broken(
                    "ends", f"{name} does not end for a reader; its log: {world.log_of_stream(kept).outcome}"
                )
            elif survives and ends != {"whole"}:
                world.ledger.broken("needless-error", f"{name} ends as {ends}")
            if spared and begun > 1:
                world.ledger.broken("paid-twice", f"{name} is generated {begun} times, and no model has died")
        if not world.ledger.violations:
            super().finish()


def make_kept(simulator: Simulator, scenario: Scenario) -> tuple[World, Judge]:
    """The world of a scenario, and who looks at it."""
    world = KeptWorld(simulator, scenario)
    return world, KeptJudge(world)


def drawn_kept(seed: int) -> Scenario:
    """The scenario of a seed in which processes that make or show kept streams die, drain and come back."""
    random = Random(f"kept {seed}")
    gateways, models = random.choice((1, 2, 2)), random.choice((1, 2))
    faults: tuple[Fault, ...] = ("kill", "kill", "stop")
    if random.random() < 0.3:
        faults = ("kill", "lose", "pause", "hold", "hold-in", "hold-out", "stop", "broker")
    troubles = tuple(_trouble(random, random.choice(faults)) for _ in range(random.choice((0, 1, 2, 3))))
    kept = [_asked(random, f"k{number}", "kept", gateways) for number in range(random.choice((2, 4, 8)))]
    others = [_asked(random, f"r{number}", "streamed", gateways) for number in range(random.choice((0, 2)))]
    return Scenario(
        mood="rough" if troubles else "calm",
        gateways=gateways,
        capacities=(16,) * models,
        flows=("a",),
        apart=False,
        helpers=(),
        skews=tuple(random.choice((0.0, 0.0, random.uniform(-5, 5))) for _ in range(gateways + models)),
        latency=0.0005,
        jitter=random.choice((0.0, 0.001, 0.02)),
        grid=random.choice((0.0, 0.005)),
        step=random.choice((0.0, 0.0002)),
        max_message=MAX_MESSAGE_BYTES,
        told_max_message=MAX_MESSAGE_BYTES,
        asked=tuple(sorted((*kept, *others), key=lambda one: one.time)),
        troubles=troubles,
    )


def _trouble(random: Random, fault: Fault) -> Trouble:
    short = fault in {"kill", "lose", "stop", "broker"}
    seconds = random.uniform(0.1, 3.0) if short else random.choice((1.0, random.uniform(3.6, 25.0)))
    return Trouble(random.uniform(2.5, 8.0), fault, random.randrange(12), seconds, random.random())


def _asked(random: Random, name: str, kind: Any, gateways: int) -> Asked:
    script = Script(name, random.choice((1, 10, 60)), first=random.choice((0.0, 0.2, 2.0)), pace=0.1)
    return Asked(random.uniform(UNTIL_READY, 6.0), random.randrange(gateways), "a", kind, script)
