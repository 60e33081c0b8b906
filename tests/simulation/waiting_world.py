"""Scenario -> processes, of which gateways also have a flex queue: answers wait for room, and outlive their gateway."""

from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Any, Final, cast

from typing_extensions import override

from tests.simulation.judge import Judge
from tests.simulation.scenario_terms import Asked, Fault, Scenario, Trouble
from tests.simulation.scripted_model import Script
from tests.simulation.simulated_process import SimulatedProcess
from tests.simulation.simulator import Simulator
from tests.simulation.world import CONFIG, TOPICS, World
from tg_base.bus import MAX_MESSAGE_BYTES
from tg_base.client import Requestor
from tg_base.client.shared_time import SharedTime
from tg_base.config import GatewayConfig
from tg_gateway.access import Limits, Payers, RateLimits
from tg_gateway.dialects import Ask, Call, Catalogue, RecordedEnd
from tg_gateway.jobs import AttemptPauses, JobLogs, JobQueue, JobRequests, JobRuns, JobStore
from tg_gateway.jobs.log import JobLog
from tg_gateway.mounts import load_mounts
from tg_gateway.relay import Relay
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TEXT_COMPLETION, Error, TextCompletionResponse, TgError, decode, encode

MOUNTS = load_mounts()
MAX_WAIT: Final = 600.0
"""Seconds for which an answer may wait: longer than a broker believes in a gateway that is dead."""
DRAIN: Final = 2.0
"""Seconds that a gateway gives what runs when it is asked to stop."""
SETTLED: Final = 200.0
"""Seconds after the last fault in which an answer has its end, whoever makes it, or says that it is lost."""
UNTIL_READY: Final = 2.0
"""Seconds after which everybody knows a processor."""
GATEWAY: Final = GatewayConfig(max_wait=MAX_WAIT)
LIMITS: Final = Limits(background=64, all_background=64, run=600.0, flex_pause=5.0)


@dataclass(eq=False)
class Kept:
    """An answer that waits.

    Attributes:
        asked: the request.
        name: of its log; None = the gateway has not said that it waits.
        at: when it said so.
    """

    asked: Asked
    name: str | None = None
    at: float = 0.0


@dataclass(frozen=True)
class _Gate:
    """What one life of a gateway has."""

    catalogue: Catalogue
    jobs: JobRequests


class WaitingWorld(World):
    """A world in which some answers wait.

    Attributes:
        kept: by the request's name.
    """

    def __init__(self, simulator: Simulator, scenario: Scenario) -> None:
        super().__init__(simulator, scenario)
        self.kept: dict[str, Kept] = {}
        self._gates: dict[SimulatedProcess, _Gate] = {}

    @override
    async def _gateway(self, process: SimulatedProcess) -> None:
        bus, seconds = self._bus(process), process.loop.time
        time = SharedTime(lambda: process.wall, seconds)
        requestor = self.requestors[process] = Requestor(bus, TOPICS, time=time)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(requestor)
            draw = Random(f"{self.simulator.seed} {process.name} {process.lives}").random
            pauses = AttemptPauses(time, draw)
            logs = JobLogs(bus, TOPICS, time, silence=LIMITS.silence, pauses=pauses)
            relay = Relay(requestor, 60.0, RateLimits(GATEWAY, seconds), {}, Payers(GATEWAY))
            runs = JobRuns(relay, logs, LIMITS)
            catalogue = Catalogue(CONFIG.routes(TEXT_COMPLETION.name), requestor.presence.serving, {})
            queue = JobQueue(requestor, runs, catalogue, LIMITS)
            await stack.enter_async_context(queue)
            self._gates[process] = _Gate(catalogue, JobRequests(requestor, queue, JobStore(logs), LIMITS))
            stack.push_async_callback(relay.drain, DRAIN)
            stack.push_async_callback(queue.drain)
            await self._serve(process, stack)

    @override
    async def _call(self, process: SimulatedProcess, asked: Asked) -> None:
        if asked.kind != "waits":
            await super()._call(process, asked)
            return
        kept = self.kept[asked.script.name] = Kept(asked)
        gate, name = self._gates[process], asked.script.name
        asking = await self._parse(gate.catalogue, asked)
        assert asking.background is not None
        entry = AccessLogEntry("background", name)
        try:
            await gate.jobs.put(asking, asking.background, entry)
        except TgError as error:
            self.simulator.note(process.name, "does not keep", name, error.message)
            return
        kept.name, kept.at = asking.background.name, self.simulator.now
        self.simulator.note(process.name, "keeps", name, kept.name)

    async def _parse(self, catalogue: Catalogue, asked: Asked) -> Ask:
        mount = next(one for one in MOUNTS if one.path == "/v1/responses" and one.method == "POST")
        terms = {"background": True, "service_tier": "flex", "max_attempts": asked.attempts}
        body = encode({"model": "scripted", "input": asked.script.line, **terms})
        dialect = mount.dialect.configure(GATEWAY)
        parsed = dialect.parse(Call(mount.operation, catalogue, {}, {}, {}, asked.script.name, body))
        return cast("Ask", await parsed if isinstance(parsed, Awaitable) else parsed)

    def log_of(self, kept: Kept) -> JobLog:
        """What the broker has of an answer."""
        return JobLog(self.broker.logs.read(TOPICS.kept(kept.name or "")))


class WaitingJudge(Judge):
    """Looks at what waits, too.

    Args:
        world: the world.
    """

    def __init__(self, world: WaitingWorld) -> None:
        super().__init__(world)
        self._waiting_world = world
        self._over_at: float | None = None

    @override
    def look(self) -> None:
        super().look()
        world = self._waiting_world
        for name, kept in world.kept.items():
            begun = len(world.ledger.generations[name])
            if begun > kept.asked.attempts and not world.ledger.violations:
                text = f"{name} is generated {begun} times, and may be {kept.asked.attempts} times"
                world.ledger.broken("begun-twice", text)

    @property
    @override
    def over(self) -> bool:
        world, now = self._waiting_world, self._waiting_world.simulator.now
        running = any(kept.name and world.log_of(kept).outcome == "running" for kept in world.kept.values())
        if running and now < max(self.quiet, *(one.time for one in world.scenario.asked)) + SETTLED:
            self.over_at = now
        return super().over

    @override
    def finish(self) -> None:
        for name, kept in self._waiting_world.kept.items():
            if kept.name is not None:
                self._check_kept(name, kept)
        if not self._waiting_world.ledger.violations:
            super().finish()

    def _check_kept(self, name: str, kept: Kept) -> None:
        world = self._waiting_world
        log, generations = world.log_of(kept), world.ledger.generations[name]
        if log.outcome == "running":
            world.ledger.broken("ends", f"{name} has no end in its log")
            return
        end = decode(RecordedEnd, log.answer.end) if log.answer.end else RecordedEnd(0, Error(log.outcome, ""))
        whole = end.error is None
        said = "".join(decode(TextCompletionResponse, record).response or "" for record in end.records)
        if whole and not any(one.script.text(one.number).rstrip() in said for one in generations):
            world.ledger.broken("prefix", f"{name} ends as {said[-200:]}, which no model has said")
        # A model may have been asked, and have died before it began.
        if not whole and max(len(generations), log.attempts) < kept.asked.attempts:
            world.ledger.broken("waits-lost", f"{name} ends as {log.outcome}: {end.error}, though it may be asked")


def make_waiting(simulator: Simulator, scenario: Scenario) -> tuple[World, Judge]:
    """The world of a scenario, and who looks at it."""
    world = WaitingWorld(simulator, scenario)
    return world, WaitingJudge(world)


def drawn_waiting(seed: int) -> Scenario:
    """The scenario of a seed in which answers wait for room that ordinary requests take."""
    random = Random(f"waiting {seed}")
    gateways, models = random.choice((1, 2, 2, 3)), random.choice((1, 2))
    capacity = random.choice((1, 1, 2))
    count = gateways + models
    faults: tuple[Fault, ...] = ("kill", "kill", "lose", "pause", "hold", "hold-in", "hold-out", "stop", "broker")
    troubles = tuple(_trouble(random, random.choice(faults), count) for _ in range(random.choice((0, 1, 1, 2))))
    waiting = [_asked(random, f"k{number}", "waits", gateways) for number in range(random.choice((2, 4, 8)))]
    others = [_asked(random, f"r{number}", "streamed", gateways) for number in range(random.choice((0, 2, 6)))]
    return Scenario(
        mood="rough" if troubles else "calm",
        gateways=gateways,
        capacities=(capacity,) * models,
        flows=("a",),
        apart=False,
        helpers=(),
        skews=tuple(random.choice((0.0, 0.0, random.uniform(-5, 5))) for _ in range(count)),
        latency=0.0005,
        jitter=random.choice((0.0, 0.001, 0.02)),
        grid=random.choice((0.0, 0.005)),
        step=random.choice((0.0, 0.0002)),
        max_message=MAX_MESSAGE_BYTES,
        told_max_message=MAX_MESSAGE_BYTES,
        asked=tuple(sorted((*waiting, *others), key=lambda one: one.time)),
        troubles=troubles,
    )


def _trouble(random: Random, fault: Fault, count: int) -> Trouble:
    short = fault in {"kill", "lose", "stop", "broker"}
    seconds = random.uniform(0.1, 3.0) if short else random.choice((1.0, random.uniform(3.6, 25.0)))
    return Trouble(random.uniform(2.5, 8.0), fault, random.randrange(count), seconds, random.random())


def _asked(random: Random, name: str, kind: Any, gateways: int) -> Asked:
    script = Script(name, random.choice((1, 3, 10)), first=random.choice((0.0, 0.2, 2.0)), pace=0.1)
    time, attempts = random.uniform(UNTIL_READY, 6.0), random.choice((1, 1, 2))
    return Asked(time, random.randrange(gateways), "a", kind, script, attempts=attempts)
