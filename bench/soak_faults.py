"""Soak's weather: what goes wrong, in an order that the seed decides. Every kind comes before one comes again."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from bench.soak_pipeline import NAMESPACE, SoakPipeline
from tg_base.bus import open_bus
from tg_schema.errors import BusError

POISON = (
    b"", b"\x00\xff\xfe", b"{", b"null", b"[]", b'{"prompt": 7}', b"[" * 100_000, b'{"a":' * 50_000,
    b'{"system": "", "prompt": "' + b"x" * 1_000_000, b'{"error": {"type": 1}}',
)  # fmt: skip


class SoakFaults:
    """The faults, one at a time.

    Args:
        pipeline: what they happen to.
        seed: of their order and times.

    Attributes:
        played: how often each was played.
        bad: what should not have happened: a process that did not end well when it was asked to.
    """

    def __init__(self, pipeline: SoakPipeline, seed: int) -> None:
        self.played: Counter[str] = Counter()
        self.bad: list[str] = []
        self.restarts: list[float] = []
        self._pipeline = pipeline
        self._random = random.Random(seed)
        # Of its own: how many topics there are must not decide what comes next.
        self._poison = random.Random(seed)
        self._deck: list[str] = []
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "processor killed": lambda: self._restart("processor-2", signal.SIGKILL),
            "processor drained": lambda: self._restart("processor-2", signal.SIGTERM),
            "gateway killed": lambda: self._restart("gateway-2", signal.SIGKILL),
            "gateway drained": lambda: self._restart("gateway-2", signal.SIGTERM),
            "broker killed": self._kill_broker,
            "broker hung": self._hang_broker,
            "poison": self.poison,
        }

    async def play(self, count: int) -> list[str]:
        """So many of them, one after the other; what was played."""
        played = []
        for _ in range(count):
            if not self._deck:
                self._deck = self._random.sample(sorted(self._kinds), len(self._kinds))
            kind = self._deck.pop()
            await asyncio.sleep(1 + self._random.random() * 3)
            await self._kinds[kind]()
            self.played[kind] += 1
            played.append(kind)
        return played

    async def _restart(self, name: str, number: int) -> None:
        member = self._pipeline.members[name]
        code = await member.restart(self._pipeline.http, number, self._random.random() * 3)
        self.restarts.append(time.monotonic())
        if code != (-signal.SIGKILL if number == signal.SIGKILL else 0):
            self.bad.append(f"{name} ended with {code} after signal {number}; see its log")

    async def _kill_broker(self) -> None:
        await asyncio.to_thread(self._pipeline.server.kill)
        await asyncio.sleep(self._random.random() * 3)
        await asyncio.to_thread(self._pipeline.server.start)
        await self._back()

    async def _hang_broker(self) -> None:
        os.kill(self._pipeline.server.pid, signal.SIGSTOP)
        await asyncio.sleep(2 + self._random.random() * 6)
        os.kill(self._pipeline.server.pid, signal.SIGCONT)
        await self._back()

    async def _back(self) -> None:
        if not await self._pipeline.ready(60):
            self.bad.append("the gateways were not ready again 60 s after the broker was")

    async def poison(self) -> None:
        """What nobody can read, on topics of every kind that there is."""
        topics = await self._pipeline.topics()
        async with open_bus(self._pipeline.server.service_url) as bus:
            for topic in topics:
                name = topic.removesuffix("-partition-0")
                if f"/{NAMESPACE}/tg-" not in name or "dead-letter" in name:
                    continue
                for body in POISON:
                    properties = self._poison.choice(({}, {"id": "poison"}, {"id": "x", "seq": "-1", "attempt": "nan"}))
                    try:
                        await bus.publish(name, body, properties)
                    except BusError:
                        self.played["poison not taken"] += 1
