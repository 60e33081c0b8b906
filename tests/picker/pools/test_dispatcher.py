"""Who waits for a model server is woken by a release, a report, a change of the pool, and the end of his time."""

import asyncio
from random import Random

import pytest

from tests.picker.core.cases import endpoint
from tg_picker.core import Endpoint, InstanceRequest, LoadReport, Pick, QueueLimits, Rejection, Scheduler
from tg_picker.pools import Dispatcher

SERVER = endpoint("a")


class Pool:
    """One server, which takes one request at a time unless something else is said."""

    def __init__(self, limits: QueueLimits | None = None) -> None:
        self.members: tuple[Endpoint, ...] = (SERVER,)
        self.scheduler = Scheduler(random=Random(0))
        self.now = asyncio.get_running_loop().time
        self.dispatcher = Dispatcher(self.scheduler, limits or QueueLimits(max_requests=1), self.now)

    def ask(self, priority: int = 0) -> "asyncio.Task[Pick | Rejection]":
        """Ask in the next turn."""
        return asyncio.create_task(self._ask(InstanceRequest(priority=priority)))

    async def _ask(self, request: InstanceRequest) -> Pick | Rejection:
        return await self.dispatcher.wait("p", self.dispatcher.submit("p", request, lambda: self.members, self.now()))

    async def picked(self) -> Pick:
        made = await self.ask()
        assert isinstance(made, Pick)
        return made

    @property
    def waiting(self) -> list[tuple[int, int]]:
        return [(priority, requests) for _, priority, requests, *_ in self.dispatcher.queues]


async def decided(task: "asyncio.Task[Pick | Rejection]") -> str:
    async with asyncio.timeout(30):
        made = await task
    return "picked" if isinstance(made, Pick) else made.reason


async def test_a_release_wakes_the_highest_band() -> None:
    pool = Pool()
    first = await pool.picked()
    low, high = pool.ask(), pool.ask(9)
    await asyncio.sleep(0)
    assert pool.waiting == [(9, 1), (0, 1)]
    first.placement.finish(None, pool.now())
    assert await decided(high) == "picked"
    assert not low.done()
    low.cancel()
    with pytest.raises(asyncio.CancelledError):
        await low
    assert pool.waiting == []


async def test_a_report_wakes() -> None:
    pool = Pool(QueueLimits(max_queued=1))
    pool.scheduler.observe(SERVER, LoadReport(pool.now(), queued=3))
    waits = pool.ask()
    await asyncio.sleep(0)
    assert pool.waiting == [(0, 1)]
    pool.scheduler.observe(SERVER, LoadReport(pool.now(), queued=0))
    assert await decided(waits) == "picked"


async def test_without_any_event_a_wait_ends() -> None:
    pool = Pool(QueueLimits(max_requests=1, max_seconds=0.001))
    await pool.picked()
    assert await decided(pool.ask()) == "expired"
    # What a server told is too old to count after a while, which nobody tells.
    stale = Pool(QueueLimits(max_queued=1))
    stale.scheduler.observe(SERVER, LoadReport(stale.now() - 1.99, queued=3))
    assert await decided(stale.ask()) == "picked"
