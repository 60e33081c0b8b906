"""Gateways that get one message in any order, at any time, and die: one of them at most asks a model, and one does."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from random import Random

from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tests.virtual_time import in_virtual_time
from tg_base.bus import Bus, Entry, LogWriter
from tg_base.bus.memory import MemoryBus
from tg_base.runtime import running
from tg_gateway.dialects.answers import Answer, Background
from tg_gateway.relay.answer_log import ASKED, RETURNED
from tg_gateway.relay.answer_store import AnswerStore
from tg_gateway.relay.claim import Claim
from tg_schema.topics import Topics

WORLDS = 400
SILENCE_SECONDS = 5.0
WAIT_SECONDS = 600.0


class SlowBus(PassingBus):
    """What one gateway asks of its logs takes any number of turns of the loop, before and after it is done."""

    def __init__(self, bus: Bus, random: Random) -> None:
        super().__init__(bus)
        self._random = random

    async def _pause(self) -> None:
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
    async def read(self, topic: str) -> tuple[Entry, ...]:
        entries = await super().read(topic)
        await self._pause()
        return entries


def background(name: str) -> Background:
    return Background(name, b"head", b"", keeps_parts=False, finish=lambda *_, **__: b"", answer=lambda _: Answer(b""))


class World:
    """One answer that waits, and what became of it."""

    def __init__(self, bus: Bus, random: Random) -> None:
        self.bus = bus
        self.random = random
        self.making = ""

    async def gateway(self, name: str) -> None:
        """Take the message whenever it comes, as the band does."""
        store = AnswerStore(SlowBus(self.bus, self.random), Topics(), silence=SILENCE_SECONDS)
        while (claim := await store.claim(None, "r")) is not None:
            if claim.mine and await self.ask(store, claim):
                await self.make(store, claim, name)
            elif not await store.outlast("r", claim.position):
                return

    async def ask(self, store: AnswerStore, claim: Claim) -> bool:
        async with (
            store.go_on(background("r"), claim) as (writer, position),
            running(heed(store, claim, position)),
        ):
            return await claim.ask(writer)

    async def make(self, store: AnswerStore, claim: Claim, name: str) -> None:
        """Ask the model, which has no room now and then. A gateway that dies meanwhile stays the one that asked."""
        assert not self.making, f"{name} asks what {self.making} has asked"
        self.making = name
        await asyncio.sleep(0)
        if self.random.random() < 0.4:
            self.making = ""
            await store.give_back("r", claim)
        else:
            await store.declare("r", "ended", b"end")


async def heed(store: AnswerStore, claim: Claim, position: str) -> None:
    async with aclosing(store.watch("r", position)) as entries:
        async for entry in entries:
            if entry is not None:
                claim.note(entry)


async def live(world: World) -> tuple[str, bool]:
    """Gateways that die at any time, then one that does not: how the answer ended, and whether it may have to fail."""
    random, name = world.random, "r"
    await AnswerStore(world.bus, Topics()).put(None, background(name), WAIT_SECONDS)
    lives = [asyncio.create_task(world.gateway(f"g{number}")) for number in range(random.choice((1, 2, 3)))]
    for _ in range(random.randrange(60)):
        await asyncio.sleep(0)
    for dying in random.sample(lives, random.randrange(len(lives) + 1)):
        dying.cancel()
    for ended in await asyncio.gather(*lives, return_exceptions=True):
        assert ended is None or isinstance(ended, asyncio.CancelledError), ended
    asked = was_asked(await world.bus.read(Topics().kept(name)))
    await world.gateway("last")
    return (await AnswerStore(world.bus, Topics()).read("", name)).outcome, asked


def was_asked(entries: tuple[Entry, ...]) -> bool:
    """Whether one has died that had said that it asks a model, and nothing after that."""
    notes = {(entry.properties["kind"], entry.properties.get("claim")) for entry in entries}
    return any(kind == ASKED and (RETURNED, claim) not in notes for kind, claim in notes)


@in_virtual_time
async def test_one_gateway_at_most_asks_a_model_and_what_none_has_asked_for_is_made() -> None:
    seen = set[tuple[str, bool]]()
    for seed in range(WORLDS):
        bus = MemoryBus()
        seen.add(await live(World(bus, Random(seed))))
        await bus.aclose()
    assert ("died", False) not in seen
    # The worlds differ, and none is left without an end.
    assert seen == {("ended", False), ("ended", True), ("died", True)}
