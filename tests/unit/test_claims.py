"""Processes that get one message in any order, at any time, and die or sleep: each attempt asks one model at most.

And what none has asked for is made, as is what may be asked for again; the next process goes on with what is made.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from random import Random

import msgspec
from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tests.virtual_time import in_virtual_time
from tg_base.bus import Bus, Entry, LogWriter
from tg_base.bus.memory import MemoryBus
from tg_base.client import StreamOrigin
from tg_base.runtime import running
from tg_base.telemetry import new_id
from tg_gateway.dialects import Answer, Background, KeptAnswer, Waiting
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.log import CANCEL, END, JobLog, kind_of, label, label_asked, label_end
from tg_gateway.jobs.logs import JobLogs
from tg_gateway.jobs.store import JobStore
from tg_gateway.jobs.writer import JobWriter
from tg_schema import decode, encode
from tg_schema.topics import Topics

WORLDS = 400
SILENCE_SECONDS = 5.0
WAIT_SECONDS = 600.0
NO_ROOM, PROCESSOR_DIES, SLEEPS = 0.4, 0.8, 0.3
"""Of 1: how often a model has no room, behind which its processor dies, and a gateway is suspended before it writes."""


class SlowBus(PassingBus):
    """What one gateway asks of its logs takes any number of turns of the loop, before and after it is done.

    Attributes:
        awake: cleared while the gateway is suspended.
    """

    def __init__(self, bus: Bus, random: Random) -> None:
        super().__init__(bus)
        self._random = random
        self.awake = asyncio.Event()
        self.awake.set()

    def suspend(self) -> None:
        """For so long that it is taken for dead, or for less."""
        self.awake.clear()
        seconds = self._random.choice((1.0, SILENCE_SECONDS, SILENCE_SECONDS + 1, 20.0))
        asyncio.get_running_loop().call_later(seconds, self.awake.set)

    async def _pause(self) -> None:
        await self.awake.wait()
        for _ in range(self._random.choice((0, 0, 1, 3, 10))):
            await asyncio.sleep(0)

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        await self._pause()
        position = await super().append(topic, body, properties)
        await self._pause()
        return position

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        yield LogWriter(topic, self.append)

    @override
    @asynccontextmanager
    async def follow(self, topic: str, after: str) -> AsyncIterator[AsyncIterator[Entry]]:
        async with super().follow(topic, after) as entries:
            yield self._read_on(entries)

    async def _read_on(self, entries: AsyncIterator[Entry]) -> AsyncIterator[Entry]:
        async for entry in entries:
            await self.awake.wait()
            yield entry

    @override
    async def read(self, topic: str) -> tuple[Entry, ...]:
        entries = await super().read(topic)
        await self._pause()
        return entries


def background(*, keeps_parts: bool = False) -> Background:
    """One answer, of the name "r"."""
    return Background("r", b"head", keeps_parts=keeps_parts, answer=lambda _: Answer(b""))


class Record(msgspec.Struct):
    """A record of the answer; others of its fields say when it was stored."""

    of: str


@dataclass
class World:
    """One answer that waits, and what became of it.

    Attributes:
        attempts: how often a model may be asked.
        kept: whether its parts are.
        suspended: whether gateways are.
        asked: attempt -> who has asked a model in it.
    """

    bus: Bus
    random: Random
    attempts: int = 1
    kept: Background = field(default_factory=background)
    suspended: bool = False
    asked: dict[int, str] = field(default_factory=dict)

    def gateway_bus(self) -> SlowBus:
        """That of one gateway."""
        return SlowBus(self.bus, self.random)

    async def gateway(self, name: str, bus: SlowBus) -> None:
        """Take the message whenever it comes, as the queue does."""
        logs = JobLogs(bus, Topics(), silence=SILENCE_SECONDS)
        while (claim := await take(logs)).running:
            if claim.lost:
                # Its message comes again.
                await logs.end_lost("r", claim.log)
                await asyncio.sleep(SILENCE_SECONDS)
            elif not await self.go_on(logs, claim, name, bus):
                return

    async def go_on(self, logs: JobLogs, claim: Claim, name: str, bus: SlowBus) -> bool:
        """Make it; whether the message comes again."""
        async with claim.write(self.kept) as writer, running(heed(logs, claim, claim.log.position)):
            stream = await self.begin(claim, writer, name)
            if stream is None:
                return not claim.lost
            end = await self.make(claim, writer, stream, bus)
            if end:
                await writer.end(end, "ended")
                return False
        await claim.give_back(spent=end is None)
        return True

    async def begin(self, claim: Claim, writer: JobWriter, name: str) -> str | None:
        """Ask the model, or find where it works: the id of the generation; None = another one may have it."""
        if claim.adopted is not None:
            return claim.adopted[0].stream
        origin = StreamOrigin(f"{name}-{new_id()}", 1, "p")
        if not await claim.ask(writer, origin):
            return None
        number = claim.log.attempts
        assert number <= self.attempts
        assert number not in self.asked, f"{name} asks what {self.asked[number]} has asked"
        self.asked[number] = origin.stream
        await asyncio.sleep(0)
        return origin.stream

    async def make(self, claim: Claim, writer: JobWriter, stream: str, bus: SlowBus) -> bytes | None:
        """Read the model's answer: b"": it has no room now; None: its processor has died.

        A gateway that dies meanwhile stays the one that asked.
        """
        what = self.random.random()
        if what < NO_ROOM and claim.adopted is None:
            del self.asked[claim.log.attempts]
            return b""
        if what > PROCESSOR_DIES and writer.empty and claim.mine and claim.log.repeatable:
            return None
        for _ in range(2):
            if self.suspended and self.random.random() < SLEEPS:
                bus.suspend()
                await bus.awake.wait()
            if not claim.mine:
                break
            writer.send(encode({"of": stream}) + b"\n", last=False)
            await asyncio.sleep(self.random.choice((0.0, 0.0, 0.2, 7.0)))
        return stream.encode()


async def take(logs: JobLogs) -> Claim:
    """The claim of who has the message: it goes on where another one was."""
    claim = Claim(logs, logs.owner(None), "r")
    await claim.load()
    if claim.running and claim.log.maker:
        await claim.take()
    return claim


async def heed(logs: JobLogs, claim: Claim, position: str) -> None:
    async with aclosing(logs.watch("r", position)) as entries:
        async for entry in entries:
            if entry is not None:
                claim.note(entry)


async def live(world: World) -> KeptAnswer:
    """Gateways that die or are suspended at any time, then one that is not: the answer."""
    random = world.random
    await JobStore(JobLogs(world.bus, Topics())).put(None, world.kept, Waiting(WAIT_SECONDS, world.attempts))
    buses = [world.gateway_bus() for _ in range(random.choice((1, 2, 3)))]
    lives = [asyncio.create_task(world.gateway(f"g{number}", bus)) for number, bus in enumerate(buses)]
    await pass_turns(random)
    for bus in random.sample(buses, random.randrange(len(buses) + 1) if world.suspended else 0):
        bus.suspend()
        await pass_turns(random)
    for dying in random.sample(lives, random.randrange(len(lives) + 1)):
        dying.cancel()
    for ended in await asyncio.gather(*lives, return_exceptions=True):
        assert ended is None or isinstance(ended, asyncio.CancelledError), ended
    await world.gateway("last", world.gateway_bus())
    return await JobStore(JobLogs(world.bus, Topics())).of(None).read("r")


async def pass_turns(random: Random) -> None:
    """As many turns of the loop as nobody knows, and now and then some time."""
    for _ in range(random.randrange(60)):
        await asyncio.sleep(0)
    await asyncio.sleep(random.choice((0.0, 0.0, 0.0, 2.0)))


def count_asked(entries: tuple[Entry, ...]) -> int:
    """How many attempts were begun before the end that counts."""
    log = JobLog()
    for entry in entries:
        before = log.attempts
        log.add(entry)
        if log.outcome != "running":
            return before
    return log.attempts


@in_virtual_time
async def test_one_gateway_at_most_asks_a_model_and_what_none_has_asked_for_is_made() -> None:
    seen = set[tuple[str, bool]]()
    for seed in range(WORLDS):
        bus = MemoryBus()
        outcome = (await live(World(bus, Random(seed)))).outcome
        seen.add((outcome, count_asked(await bus.read(Topics().kept("r"))) > 0))
        await bus.aclose()
    # None is left without an end: who gets the message of a dead gateway goes on.
    assert seen == {("ended", True)}


@in_virtual_time
async def test_each_attempt_asks_one_model_and_one_answer_counts_whoever_dies_or_sleeps() -> None:
    seen = set[tuple[str, int]]()
    for seed in range(WORLDS):
        bus, random = MemoryBus(), Random(seed)
        world = World(bus, random, random.choice((2, 3)), background(keeps_parts=random.random() < 0.5), True)
        answer = await live(world)
        entries = await bus.read(Topics().kept("r"))
        parts = [step async for step in JobStore(JobLogs(bus, Topics())).of(None, bounded=False).follow("r")][:-1]
        told = b"".join(part for part in parts if isinstance(part, bytes))
        if answer.outcome == "ended":
            # All of it is of one generation.
            assert {decode(Record, line).of.encode() for line in told.split()} <= {answer.end}
        else:
            # What may be asked for again, and of which nobody has read anything, is not given up.
            assert count_asked(entries) >= world.attempts or told, (seed, entries)
        seen.add((answer.outcome, len(world.asked)))
        await bus.aclose()
    # The worlds differ: some need all attempts, and some need more.
    assert {("ended", 1), ("ended", 2), ("ended", 3)} <= seen


async def test_what_is_cancelled_while_its_taker_pauses_ends_when_that_reads_on() -> None:
    bus = MemoryBus()
    logs = JobLogs(bus, Topics())
    await JobStore(logs).put(None, background(), Waiting(WAIT_SECONDS, 2))
    claim = await take(logs)
    # By who has read the log when another gateway made it.
    await bus.append(Topics().kept("r"), b"", label(CANCEL))
    assert claim.running
    await claim.load()
    assert (claim.running, claim.log.outcome) == (False, "cancelled")
    await bus.aclose()


class OvertakenBus(PassingBus):
    """A reader's. Before an end of that one a gateway takes the answer and asks a model."""

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        if properties["kind"] == END:
            await super().append(topic, b"", label_asked("other"))
        return await super().append(topic, body, properties)


async def test_a_reader_does_not_call_expired_what_a_gateway_begins_meanwhile() -> None:
    bus = MemoryBus()
    await JobStore(JobLogs(bus, Topics())).put(None, background(), Waiting(0.0))
    assert (await JobStore(JobLogs(OvertakenBus(bus), Topics())).of(None).read("r")).outcome == "running"
    assert kind_of((await bus.read(Topics().kept("r")))[-1]) == END
    # Nor does it hide what the gateway says.
    await JobLogs(bus, Topics()).declare("r", label_end("ended", by="other"), b"answer")
    assert (await JobStore(JobLogs(bus, Topics())).of(None).read("r")).end == b"answer"
    await bus.aclose()
