"""What streams leave in memory at any door: nothing, whether their clients read to the end or leave."""

import asyncio
import gc
from collections import Counter

import pytest

from tests.door_matrix.door import Door
from tests.door_matrix.doors import DOORS
from tests.door_matrix.stage import Stage, open_stage
from tests.flow.patient_timing import PatientTiming
from tests.pulsar_server import PulsarServer
from tests.until import until
from tg_base.bus import Bus, open_bus
from tg_base.bus.memory import MemoryBus
from tg_base.config import GatewayConfig
from tg_base.runtime import running
from tg_schema.topics import Topics

STREAMS = 8
"""Of each kind: what is kept of fewer is the latest one's, as a server keeps the latest request of a connection."""

MAX_TIMERS = 150
"""That wait in the loop of these tests."""

BOUNDED = frozenset({"_Withdrawn"})
"""What a requestor remembers of the latest clients that left before a processor had accepted: `MAX_WITHDRAWN`."""

NOTHING_KEPT = GatewayConfig(port=0, drain=0.05, store=False)
"""What a response leaves that is kept is meant to stay."""

ONE_OF_EACH_WAY = tuple({door.way: door for door in DOORS}.values())
"""The doors that are tried over Pulsar: what differs there is behind all doors."""


def find_new(name: str | None = None) -> list[object]:
    """The new objects of our classes; of this one alone, if it is named."""
    ours = (each for each in gc.get_objects() if str(type(each).__module__).startswith("tg_"))
    return [each for each in ours if name in {None, type(each).__qualname__}]


def find_kept() -> dict[str, int]:
    """The classes of ours with so many new objects that each stream must have left one."""
    counts = Counter(type(each).__qualname__ for each in find_new())
    return {name: count for name, count in counts.items() if count >= STREAMS and name not in BOUNDED}


async def ask_and_leave(door: Door, it: Stage) -> None:
    """Clients that read to the end, and as many that leave before it."""
    it.llm.forget()
    await asyncio.gather(*(it.ask(door, "3") for _ in range(STREAMS)))
    for _ in range(STREAMS):
        it.llm.silent = True
        async with it.visit(door, "1000"):
            await it.llm.started.wait()
        await it.llm.stopped.wait()
        it.llm.forget()
    it.llm.requests.clear()


def forget_timers() -> None:
    """Let the loop drop its cancelled timers. It keeps them, with their contexts, while they are below a hundred."""
    loop = asyncio.get_running_loop()
    for _ in range(2 * MAX_TIMERS):
        loop.call_later(60, forget_timers).cancel()


async def until_freed(door: Door) -> None:
    """Return once nothing is kept.

    Raises:
        AssertionError: something is; it says what, and what holds it.
    """
    forget_timers()
    try:
        await until(lambda: not find_kept())
    except AssertionError:
        kept = find_kept()
        holders = {
            name: {type(holder).__qualname__ for each in find_new(name) for holder in gc.get_referrers(each)}
            for name in kept
        }
        raise AssertionError(f"{door.name} leaves {kept}, held by {holders}") from None


async def check_doors(it: Stage, doors: tuple[Door, ...]) -> None:
    """What comes after the first client of a door, who leaves caches, is freed without the collector."""
    for door in doors:
        await it.ask(door, "1")
    it.llm.requests.clear()
    gc.collect()
    gc.disable()
    # From here on `get_objects` has only what is new.
    gc.freeze()
    try:
        for door in doors:
            await ask_and_leave(door, it)
            await until_freed(door)
    finally:
        # No `unfreeze`: it would hand the collector all tests and libraries too (tests/conftest.py).
        gc.enable()


async def read_usage(bus: Bus) -> None:
    """Take the records of usage: memory:// keeps the newest thousand of a topic that nobody reads."""
    async with bus.subscribe(Topics().usage, "usage") as deliveries:
        async for delivery in deliveries:
            delivery.ack()


async def test_over_memory() -> None:
    bus = MemoryBus()
    async with running(read_usage(bus)), open_stage(config=NOTHING_KEPT, bus=bus) as it:
        await check_doors(it, DOORS)
    await bus.aclose()


@pytest.mark.connected
async def test_over_pulsar(pulsar: PulsarServer) -> None:
    async with (
        open_bus(pulsar.service_url) as bus,
        open_stage(config=NOTHING_KEPT, bus=bus, timing=PatientTiming(interval=0.2)) as it,
    ):
        await check_doors(it, ONE_OF_EACH_WAY)
