"""Processes and gateways in virtual time -> bytes a second of presence, heartbeats and reports, at each of them.

All run on one stepped loop and a bus in memory, whose every message is counted where it is published and where it is
read: `python -m tests.simulation.presence_traffic --processes 100 --gateways 100`.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.passing_bus import RemoteBus
from tests.fakes.typed_clients import LlmClient
from tests.simulation.simulated_loop import SimulatedLoop
from tg_base.bus import Delivery
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_base.server import Host, Processor
from tg_base.telemetry import configure_log
from tg_schema import TEXT_COMPLETION, TextCompletionRequest
from tg_schema.topics import Topics

TOPICS = Topics()
SETTLED_SECONDS = 5.0
"""After this no process is new to another one."""
MEASURED_SECONDS = 1.0
"""What is said is said once in it."""
REQUEST = TextCompletionRequest(prompt="1", streaming=True)


class MeteredBus(RemoteBus):
    """One process's connection to the broker, with the bytes of bodies and properties.

    Attributes:
        published: bytes so far.
        received: bytes so far.
    """

    def __init__(self, bus: MemoryBus) -> None:
        super().__init__(bus)
        self.published = self.received = 0

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        self.published += _size(body, properties)
        await super().publish(topic, body, properties)

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        async with super().subscribe(topic, group, prefetch=prefetch) as deliveries:
            yield self._count(deliveries)

    async def _count(self, deliveries: AsyncIterator[Delivery]) -> AsyncIterator[Delivery]:
        async for delivery in deliveries:
            self.received += _size(delivery.body, delivery.properties)
            yield delivery


def _size(body: bytes, properties: Mapping[str, str]) -> int:
    return len(body) + sum(len(name) + len(value) for name, value in properties.items())


@dataclass(frozen=True)
class Traffic:
    """Bytes a second, of the average process and gateway.

    Attributes:
        announced: what a process publishes.
        heard: what a process reads.
        asked: what a gateway publishes.
        read: what a gateway reads.
        taken: what the broker takes of all.
        given: what the broker gives to all.
    """

    announced: float
    heard: float
    asked: float
    read: float
    taken: float
    given: float


class _World:
    """Processes with one model each, and gateways."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._bus = MemoryBus()
        self._stack = stack
        self._processes: list[MeteredBus] = []
        self._gateways: list[MeteredBus] = []
        self._routes: list[Route[Any, Any]] = []
        self._requestors: list[Requestor] = []

    async def open(self, processes: int, gateways: int) -> None:
        for _ in range(gateways):
            # Not all at the same moment: their heartbeats would come together.
            await asyncio.sleep(1 / gateways)
            bus = MeteredBus(self._bus)
            self._gateways.append(bus)
            self._requestors.append(await self._stack.enter_async_context(Requestor(bus, TOPICS)))
        for number in range(processes):
            await asyncio.sleep(1 / processes)
            await self._serve(f"flow-{number}")

    async def _serve(self, flow: str) -> None:
        bus, model = MeteredBus(self._bus), CountingLlm()
        model.step = asyncio.Semaphore(0)
        route = Route(flow, TEXT_COMPLETION, TOPICS.request(flow, "t"), TOPICS.response(flow, "t"))
        host = await self._stack.enter_async_context(Host(bus, TOPICS))
        await self._stack.enter_async_context(Processor(bus, TOPICS, model, (route,), models=(flow,), host=host))
        self._processes.append(bus)
        self._routes.append(route)

    async def ask(self, links: int) -> None:
        """Begin a stream from each gateway to this many processes."""
        for number, requestor in enumerate(self._requestors):
            for step in range(links):
                route = self._routes[(number + step) % len(self._routes)]
                await self._stack.enter_async_context(LlmClient(requestor, route).stream(REQUEST))

    async def measure(self) -> Traffic:
        buses = [*self._processes, *self._gateways]
        before = {bus: (bus.published, bus.received) for bus in buses}
        await asyncio.sleep(MEASURED_SECONDS)
        sent = {bus: (bus.published - before[bus][0]) / MEASURED_SECONDS for bus in buses}
        read = {bus: (bus.received - before[bus][1]) / MEASURED_SECONDS for bus in buses}
        return Traffic(
            _mean(sent, self._processes),
            _mean(read, self._processes),
            _mean(sent, self._gateways),
            _mean(read, self._gateways),
            sum(sent.values()),
            sum(read.values()),
        )


def _mean(bytes_of: dict[MeteredBus, float], buses: list[MeteredBus]) -> float:
    return sum(bytes_of[bus] for bus in buses) / len(buses)


def count_traffic(processes: int, gateways: int, links: int) -> tuple[Traffic, Traffic]:
    """What so many cost when none is new to another one: at rest, and while streams run of which no record comes.

    Args:
        processes: how many, each with one model.
        gateways: how many.
        links: processes that each gateway has a running stream on.
    """

    async def run() -> tuple[Traffic, Traffic]:
        async with AsyncExitStack() as stack:
            world = _World(stack)
            await world.open(processes, gateways)
            await asyncio.sleep(SETTLED_SECONDS)
            rest = await world.measure()
            await world.ask(links)
            await asyncio.sleep(2.0)
            return rest, await world.measure()

    return _step(run())


def _step(work: Coroutine[Any, Any, tuple[Traffic, Traffic]]) -> tuple[Traffic, Traffic]:
    now = 0.0
    with closing(SimulatedLoop(lambda: now, 0.0)) as loop:
        task = loop.create_task(work)
        while not task.done():
            now = max(loop.due, now)
            loop.step()
        return task.result()


def main() -> None:
    """Print one line for rest, and one for streams on so many processes from each gateway."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--processes", type=int, default=100)
    options.add_argument("--gateways", type=int, default=100)
    options.add_argument("--links", type=int, default=10)
    given = options.parse_args()
    configure_log("text", "warning")
    for name, traffic in zip(
        ("rest", "busy"), count_traffic(given.processes, given.gateways, given.links), strict=True
    ):
        print(name, traffic)


if __name__ == "__main__":
    main()
