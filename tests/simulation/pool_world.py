"""Seed -> a pool in virtual time: servers that come, go and hang, and clients that wait for them, or leave.

A pool's servers are reached by HTTP, not by the bus, so this world has neither broker nor requestors: the dispatcher
alone decides who goes where. It runs on one loop; `python -m tests.simulation.pool_world --seeds 2000` tries many.
"""

import argparse
import asyncio
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import Final

from bench.instances.baselines.policies import ALL_POLICIES
from tests.simulation.simulated_loop import SimulatedLoop
from tg_picker.core import Endpoint, InstanceRequest, LoadReport, Pick, QueueLimits, Scheduler, Waiting
from tg_picker.pools.dispatcher import Dispatcher

POOL: Final = "pool"
POLICIES: Final = ("random", "round-robin", "least-request", "predicted-wait")
IDLE: Final = 0.6
"""Seconds that a request may wait although a server has room: the dispatcher looks every quarter of a second."""
LATE: Final = 0.3
"""Seconds after the end of its time in which a request is told so."""
ARRIVALS: Final = 6.0
"""Seconds in which requests come."""
LONGEST: Final = 60.0
"""Seconds after which nothing runs any more."""
LOOK: Final = 0.05
MAX_TOLD: Final = 10
"""Seeds that fail, after which no more are tried."""


@dataclass(eq=False)
class _Client:
    """A request: when it comes, for how long its answer runs, and when its client leaves; None = it stays."""

    number: int
    priority: int
    comes: float
    runs: float
    stays: float | None
    size: int
    asked: Waiting | None = None

    @property
    def waits(self) -> bool:
        """Whether nothing is decided about it."""
        return self.asked is not None and self.asked.made is None


class PoolWorld:
    """Everything of one run.

    Attributes:
        broken: the promises that were broken, with what happened.
    """

    def __init__(self, seed: int) -> None:
        random = self._random = Random(f"pool {seed}")
        self.broken: list[str] = []
        self.now = 0.0
        self._limits = QueueLimits(
            max_waiting=random.choice((0, 5, 50, 50)),
            max_bytes=random.choice((1_000, 100_000)),
            max_seconds=random.choice((1.0, 4.0)),
            max_requests=random.choice((1, 1, 2, 4)),
            sheddable=random.random() < 0.5,
        )
        self._servers = [
            Endpoint(f"server{number}:8000", f"server{number}") for number in range(random.choice((1, 1, 2, 3)))
        ]
        # Ends, leaves and arrivals at the same moment.
        self._together = random.random() < 0.5
        self._away: list[Endpoint] = []
        self._running: Counter[str] = Counter()
        self._lives: Counter[str] = Counter()
        self._clients = [self._draw(number) for number in range(random.choice((5, 40, 60)))]

    def _draw(self, number: int) -> _Client:
        random = self._random
        stays = random.uniform(0.01, 3.0) if random.random() < 0.5 else None
        runs = random.choice((0.01, 0.2, random.uniform(0.1, 3.0)))
        comes = random.choice((1.0, random.uniform(0.0, ARRIVALS)))
        if self._together:
            comes, runs, stays = round(comes, 1), round(runs, 1), stays and round(stays, 1)
        return _Client(number, random.choice((-1, 0, 0, 1)), comes, runs, stays, random.choice((10, 200)))

    def run(self) -> list[str]:
        """Live until nothing happens any more; the broken promises."""
        with closing(SimulatedLoop(lambda: self.now, 0.0)) as loop:
            loop.on_exception = lambda context: self.broken.append(f"defect: {context}")
            main = loop.create_task(self._live())
            while not main.done():
                self.now = max(loop.due, self.now)
                loop.step()
            main.result()
            self._check_rest(loop)
        return self.broken

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        policy = self._random.choice(POLICIES)
        self._dispatcher = Dispatcher(Scheduler(ALL_POLICIES[policy](), random=Random(0)), self._limits, loop.time)
        async with asyncio.TaskGroup() as tasks:
            for client in self._clients:
                tasks.create_task(self._ask(client))
            for server in self._servers:
                tasks.create_task(self._change(server))
            look = tasks.create_task(self._look())
            await asyncio.sleep(LONGEST)
            look.cancel()

    async def _change(self, server: Endpoint) -> None:
        """A server goes and comes again, and tells its load."""
        random, scheduler = self._random, self._dispatcher.scheduler
        for _ in range(random.choice((0, 1, 2))):
            await asyncio.sleep(random.uniform(0.5, 3.0))
            self._away.append(server)
            self._lives[server.address] += 1
            scheduler.retain(self._present())
            await asyncio.sleep(random.uniform(0.1, 2.0))
            self._away.remove(server)
            scheduler.observe(server, LoadReport(self.now, queued=0, running=self._running[self._life(server)]))

    def _life(self, server: Endpoint) -> str:
        """A server as it is known now: of one that has left, and comes again, nothing is known."""
        return f"{server.address} {self._lives[server.address]}"

    def _present(self) -> tuple[Endpoint, ...]:
        return tuple(server for server in self._servers if server not in self._away)

    async def _ask(self, client: _Client) -> None:
        await asyncio.sleep(client.comes)
        served = asyncio.create_task(self._be_served(client))
        await asyncio.wait([served], timeout=client.stays)
        if not served.done():
            # It may leave before, while or after a server is found for it, in turns of the loop.
            for _ in range(client.number % 5):
                await asyncio.sleep(0)
            served.cancel()
            await asyncio.wait([served])
        if not served.cancelled():
            served.result()
        client.asked = None

    async def _be_served(self, client: _Client) -> None:
        asked = InstanceRequest(priority=client.priority, prompt_tokens=10, flow=f"flow{client.number % 3}")
        submitted = self._dispatcher.submit(POOL, asked, self._present, self.now, size=client.size)
        if submitted.made is None:
            client.asked = submitted
        made = await self._dispatcher.wait(POOL, submitted)
        if not isinstance(made, Pick):
            if made.status not in {429, 503}:
                self.broken.append(f"refusal: {client.number} is refused with {made.status}")
            return
        life = self._life(made.endpoint)
        if self._running[life] >= (self._limits.max_requests or 0):
            self.broken.append(f"crowded: {life} gets {client.number} and runs {self._running[life]} already")
        self._running[life] += 1
        try:
            await asyncio.sleep(client.runs)
        finally:
            self._running[life] -= 1
            made.placement.finish(None, self.now)

    async def _look(self) -> None:
        """Does anybody wait who need not, or for longer than it may, or beside too many?"""
        roomy_since: float | None = None
        while True:
            await asyncio.sleep(LOOK)
            waiting = [client for client in self._clients if client.waits]
            most = self._limits.max_requests or 0
            room = any(self._running[self._life(server)] < most for server in self._present())
            roomy_since = (roomy_since or self.now) if room and waiting else None
            if roomy_since is not None and self.now - roomy_since > IDLE:
                self.broken.append(f"idle: {len(waiting)} wait although a server has room")
            if any(client.asked is not None and self.now > client.asked.expires_at + LATE for client in waiting):
                self.broken.append("late: a request waits for longer than it may")
            if len(waiting) > self._limits.max_waiting or sum(one.size for one in waiting) > self._limits.max_bytes:
                self.broken.append(f"bound: {len(waiting)} wait")

    def _check_rest(self, loop: SimulatedLoop) -> None:
        if queues := list(self._dispatcher.queues):
            self.broken.append(f"rest: {queues} are left")
        if left := [state.requests for state in self._dispatcher.scheduler.servers if state.requests]:
            self.broken.append(f"rest: {left} requests still count at servers where nothing runs")
        if loop.due != float("inf"):
            self.broken.append("rest: a timer is left")


def main() -> int:
    """0 = every seed kept all promises."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.pool_world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to try (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    arguments = parser.parse_args()
    failed = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        if broken := PoolWorld(seed).run():
            failed += 1
            print(f"seed {seed}: {broken[0]}")
            if failed >= MAX_TOLD:
                break
    print(f"{arguments.seeds} seeds from {arguments.first}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
