"""Pickers that share what they place over a bus: the memory one, one that is away, and one that means harm."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar

import structlog
from typing_extensions import override

from tests.fakes.ending_bus import EndingBus
from tests.fakes.mortal_bus import MortalBus
from tests.fakes.passing_bus import PassingBus
from tests.picker.core.cases import request
from tests.unit.test_config_edits import seen
from tests.until import until
from tests.virtual_time import VirtualTimeLoop, in_virtual_time
from tg_base.bus import Bus, Delivery, open_bus
from tg_base.telemetry import new_id
from tg_picker.core import DEFAULT_TIMING, Pick, Placement, Scheduler, SharingTiming
from tg_picker.pools import Host, PoolSources
from tg_picker.pools.followed_pools import FollowedPools
from tg_picker.pools.placement_exchange import PlacementExchange
from tg_picker.pools.pool_watcher import PoolWatcher
from tg_schema.topics import Topics

TOPIC = Topics().placements
HASTY = SharingTiming(heartbeat=0.05, dead_after=0.5, ask=0.05)
SOURCES = PoolSources(hosts=(Host("10.0.0.1", (8000,)), Host("10.0.0.2", (8000,))))


class SharingPicker:
    """A scheduler over two servers, and its exchange."""

    def __init__(self, bus: Bus, topic: str = TOPIC, timing: SharingTiming = DEFAULT_TIMING) -> None:
        self.scheduler = Scheduler("round-robin")
        self.pools = FollowedPools(PoolWatcher(SOURCES), self.scheduler, None)
        self.exchange = PlacementExchange(bus, topic, self.scheduler, self.pools, timing=timing, retry=0.05)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["SharingPicker"]:
        async with self.pools, self.exchange:
            yield self

    def place(self) -> Placement:
        now = asyncio.get_running_loop().time()
        made = self.scheduler.pick(request("x", blocks=(1, 2)), self.pools.view.endpoints, now)
        assert isinstance(made, Pick)
        return made.placement

    @property
    def requests(self) -> int:
        return sum(server.requests for server in self.scheduler.servers)


async def follow_each_other(bus: Bus, topic: str) -> None:
    """Two pickers, and one that comes later: what one places counts at all, until it ends or its picker does."""
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(SharingPicker(bus, topic).running()) for _ in range(2)]
        await until(lambda: len(first.exchange.shared.peers) == len(second.exchange.shared.peers) == 1)
        placements = [first.place(), first.place(), second.place()]
        await until(lambda: first.requests == second.requests == 3)
        async with SharingPicker(bus, topic).running() as third:
            await until(lambda: third.requests == 3)
            third.place()
            await until(lambda: first.requests == second.requests == 4)
        await until(lambda: first.requests == second.requests == 3)
        for placement in placements:
            placement.finish(None, asyncio.get_running_loop().time())
        await until(lambda: first.requests == second.requests == 0)
        assert sum(len(server.prefixes) for server in second.scheduler.servers) == 4


async def test_pickers_over_a_bus_pick_as_one(bus: Bus) -> None:
    await follow_each_other(bus, f"{TOPIC}-{new_id()}")


async def test_a_killed_picker_s_requests_end_with_its_heartbeat() -> None:
    async with open_bus("memory://") as bus, SharingPicker(bus, timing=HASTY).running() as lives:
        mortal = MortalBus(bus)
        async with SharingPicker(mortal, timing=HASTY).running() as dies:
            dies.place()
            await until(lambda: lives.requests == 1)
            mortal.kill()
            await until(lambda: lives.requests == 0)
            assert [len(server.prefixes) for server in lives.scheduler.servers] == [2]


async def test_without_a_bus_a_picker_goes_on_alone() -> None:
    logs: list[MutableMapping[str, Any]]
    with structlog.testing.capture_logs() as logs:
        async with open_bus("memory://") as bus, SharingPicker(bus, timing=HASTY).running() as other:
            ending = EndingBus(bus)
            ending.away = True
            async with SharingPicker(ending, timing=HASTY).running() as alone:
                assert (await seen(logs, "placements.alone"))["reason"]
                other.place()
                alone.place()
                assert alone.requests == 1
                ending.away = False
                await seen(logs, "placements.shared")
                await until(lambda: alone.requests == other.requests == 2)
                ending.away = True
                ending.end(TOPIC)
                await seen(logs, "placements.alone")
                await until(lambda: alone.requests == 1)
                assert alone.exchange.shared.peers == {}
    assert [entry["event"] for entry in logs if entry["event"].startswith("placements")] == []


class SlowDelivery:
    """A message that takes a tenth of a second of the loop to read."""

    properties: ClassVar[dict[str, str]] = {}

    @property
    def body(self) -> bytes:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.suspend(0.1)
        return b"\xc1 no delta"


class FloodedBus(PassingBus):
    """Brings one slow message after the other."""

    brought = 0

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        async def bring() -> AsyncIterator[Delivery]:
            while True:
                self.brought += 1
                yield SlowDelivery()  # type: ignore[misc]

        yield bring()


@in_virtual_time
async def test_a_flood_takes_no_more_than_a_quarter_of_the_loop() -> None:
    async with open_bus("memory://") as bus:
        flooded = FloodedBus(bus)
        async with SharingPicker(flooded).running():
            await asyncio.sleep(40)
    assert 90 <= flooded.brought <= 105


async def test_a_strange_message_is_counted_and_the_next_one_read() -> None:
    async with (
        open_bus("memory://") as bus,
        SharingPicker(bus).running() as reads,
        SharingPicker(bus).running() as writes,
    ):
        await until(lambda: len(reads.exchange.shared.peers) == len(writes.exchange.shared.peers) == 1)
        await bus.publish(TOPIC, b"\xc1 no delta", {})
        writes.place()
        await until(lambda: reads.requests == 1)
        assert reads.exchange.shared.dropped["poison"] == writes.exchange.shared.dropped["poison"] == 1
