"""How many messages a link makes of its streams, and how long a chunk waits for its message: in virtual time.

    python -m bench.link_messages                one link, several loads; then as many streams over more links
    python -m bench.link_messages --trip 3       a broker that takes 3 ms for each message

The real links and the real inbox, on a loop without a clock: the figures depend on no machine, and a run takes seconds.
Chunks come as by chance around their gap; the loop's own time for a chunk is 0, so this is what waiting alone costs.
"""

import argparse
import asyncio
from contextlib import AsyncExitStack, closing
from random import Random
from typing import NamedTuple

from bench.stamped import percentile
from tests.fakes.network_bus import NetworkBus
from tests.simulation.simulated_loop import SimulatedLoop
from tests.simulation.simulator import Simulator
from tg_base.bus.memory import MemoryBus
from tg_base.client.control_sender import ControlSender
from tg_base.client.inbox import Inbox
from tg_base.protocol import Frame, Heartbeat, HeartbeatTiming, LinkSender, LinkStream, StreamKey
from tg_base.runtime import running
from tg_base.server.link_pool import LinkPool
from tg_schema import TextCompletionResponse, decode
from tg_schema.topics import Topics

WARM_UP_SECONDS = 2
SECONDS = 5
TOPICS = Topics()


class Load(NamedTuple):
    """Streams that are spread over links to one inbox."""

    links: int
    streams: int
    gap: float = 0.010


LOADS = (
    Load(1, 1), Load(1, 4), Load(1, 16), Load(1, 64, 0.030), Load(1, 64), Load(1, 256),
    Load(4, 4), Load(4, 64), Load(4, 256), Load(12, 12), Load(12, 64),
)  # fmt: skip


class Seen(NamedTuple):
    """What came of a load."""

    messages: float
    chunks: float
    p50: float
    p99: float


class World:
    """One inbox, and the processors that answer it."""

    def __init__(self, load: Load, trip: float, loop: SimulatedLoop) -> None:
        self._load = load
        self._loop = loop
        self._bus = MemoryBus()
        self._near = NetworkBus(self._bus)
        self._near.delay = trip
        self._controls = ControlSender(self._near, TOPICS, loop.time)
        self._inbox = Inbox(TOPICS.inbox("bench"), self._controls, loop.time, self._note)
        self._random = Random(1)
        self._late: list[float] = []
        self._messages = 0

    async def run(self, seconds: int, warm_up: int) -> Seen:
        """Let all streams flow; measure `seconds` of it after the seconds of the warm-up."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(running(self._receive()))
            stack.callback(self._controls.close)
            for number in range(self._load.links):
                pool = LinkPool(self._near, f"p{number}", HeartbeatTiming(), self._loop.time)
                await stack.enter_async_context(running(self._heed(pool, number)))
                stack.push_async_callback(pool.aclose, 0.0)
                link = pool.to(self._inbox.topic)
                for stream in range(number, self._load.streams, self._load.links):
                    await stack.enter_async_context(running(self._speak(link, StreamKey(f"s{stream}", 1))))
            await self._keep_up(warm_up)
            self._late.clear()
            self._messages = 0
            await self._keep_up(seconds)
        await self._bus.aclose()
        late = [1000 * each for each in self._late]
        each = len(late) / max(self._messages, 1)
        return Seen(self._messages / seconds, each, percentile(late, 50), percentile(late, 99))

    async def _keep_up(self, seconds: int) -> None:
        """Acknowledge once a second, as a requestor does, for so long."""
        for _ in range(seconds):
            await asyncio.sleep(1.0)
            for number in range(self._load.links):
                self._inbox.send_heartbeat(f"p{number}")

    async def _speak(self, link: LinkSender, key: StreamKey) -> None:
        await asyncio.sleep(self._random.random() * self._load.gap)
        spoken = LinkStream(link, key, 5.0)
        while True:
            await spoken.send(TextCompletionResponse(response=f"{self._loop.time()} "))
            await asyncio.sleep(self._load.gap * self._random.uniform(0.8, 1.2))

    async def _receive(self) -> None:
        async with self._bus.subscribe(self._inbox.topic, None) as deliveries:
            async for delivery in deliveries:
                self._messages += 1
                self._inbox.take(delivery)

    def _note(self, _processor: str, _link: int, frame: Frame) -> None:
        text = decode(TextCompletionResponse, bytes(frame.record)).response or ""
        self._late += [self._loop.time() - float(word) for word in text.split()]

    async def _heed(self, pool: LinkPool, number: int) -> None:
        async with self._near.subscribe(TOPICS.control(f"p{number}"), None) as deliveries:
            async for delivery in deliveries:
                pool.on_heartbeat(decode(Heartbeat, delivery.body))


def in_virtual_time(load: Load, *, trip: float = 0.001, seconds: int = SECONDS, warm_up: int = WARM_UP_SECONDS) -> Seen:
    """Run a load on a loop whose clock jumps to what is next.

    Args:
        load: what flows.
        trip: seconds that the broker takes for a message.
        seconds: how long to look at it.
        warm_up: seconds before that.
    """
    simulator = Simulator(1)
    with closing(SimulatedLoop(simulator.clock, 100.0)) as loop:
        task = loop.create_task(World(load, trip, loop).run(seconds, warm_up))
        while not task.done():
            simulator.now = max(loop.due, simulator.now)
            loop.step()
        return task.result()


def main() -> None:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trip", type=float, default=1.0, help="ms that the broker takes for a message")
    args = parser.parse_args()
    print("| links | streams | gap, ms | messages/s | chunks a message | chunk to inbox p50 / p99, ms |")
    print("|---|---|---|---|---|---|")
    for load in LOADS:
        seen = in_virtual_time(load, trip=args.trip / 1000)
        shape = f"{load.links} | {load.streams} | {1000 * load.gap:g}"
        print(f"| {shape} | {seen.messages:,.0f} | {seen.chunks:.1f} | {seen.p50:.2f} / {seen.p99:.2f} |", flush=True)


if __name__ == "__main__":
    main()
