"""A process that uses the bus over the real broker, and ends in one of the ways in which processes end.

python -m tests.connected.ending_process WAY URL
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from uuid import uuid4

from tg_base.bus import Bus, Delivery, open_bus

INTERRUPTED = -signal.SIGINT
WAYS = {"return": 0, "raise": 1, "exit": 7, "interrupt": INTERRUPTED, "forgotten": 0, "loop closed": 0, "collected": 0}
"""How it ends, and its exit status."""
BUSY = 0.15
"""Seconds of traffic before the end; the end falls into the middle of it wherever it may."""


async def read(deliveries: AsyncIterator[Delivery]) -> None:
    """Read until the end."""
    async for delivery in deliveries:
        delivery.ack()


async def write(bus: Bus, topics: list[str]) -> None:
    """Publish until the end."""
    while True:
        for topic in topics:
            await bus.publish(topic, b"x" * 100, {"id": "1"})


async def begin(bus: Bus, stack: AsyncExitStack) -> list[asyncio.Task[None]]:
    """Subscribe in every way, and start the traffic."""
    kept, passing = f"persistent://tg/request/{uuid4().hex}", f"non-persistent://tg/response/{uuid4().hex}"
    subscriptions = [(kept, "g", 0), (kept, "h", 100), (kept, None, 100), (passing, None, 100), (passing, "g", 0)]
    works = [write(bus, [kept, passing]) for _ in range(3)]
    works += [
        read(await stack.enter_async_context(bus.subscribe(topic, group, prefetch=prefetch)))
        for topic, group, prefetch in subscriptions
    ]
    return [asyncio.create_task(work) for work in works]


async def orderly(url: str, way: str) -> None:
    """End inside `async with`."""
    async with open_bus(url) as bus, AsyncExitStack() as stack:
        tasks = await begin(bus, stack)
        await asyncio.sleep(BUSY)
        if way == "raise":
            raise ValueError("a defect")
        if way == "exit":
            sys.exit(WAYS[way])
        if way == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def left_open(url: str, kept: list[object]) -> None:
    """Return with everything open; what is not in `kept` may be collected."""
    opening, stack = open_bus(url), AsyncExitStack()
    bus = await opening.__aenter__()
    kept += [opening, stack, *await begin(bus, stack)]
    await asyncio.sleep(BUSY)


def main(way: str, url: str) -> int:
    """Run, end, and say how."""
    if way not in {"forgotten", "loop closed", "collected"}:
        asyncio.run(orderly(url, way))
        return 0
    kept: list[object] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(left_open(url, kept))
    if way == "loop closed":
        loop.close()
    if way == "collected":
        kept.clear()
        gc.collect()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
