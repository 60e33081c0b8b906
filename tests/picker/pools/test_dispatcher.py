"""Who waits for a model server is woken by a release, a report, a change of the pool, and the end of his time."""

import asyncio
from collections import Counter
from random import Random

import pytest

from tests.picker.core.cases import endpoint
from tests.picker.core.test_accounting import NOTHING, counters
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


async def test_a_change_of_the_pool_wakes() -> None:
    pool = Pool()
    await pool.picked()
    waits, other = pool.ask(), pool.ask()
    await asyncio.sleep(0)
    assert pool.waiting == [(0, 2)]
    pool.members = (SERVER, endpoint("b"))
    pool.scheduler.retain(pool.members)
    assert await decided(waits) == "picked"
    pool.members = ()
    pool.scheduler.retain(())
    late = pool.ask()
    await asyncio.sleep(0)
    assert pool.waiting == [(0, 2)]
    pool.members = tuple(map(endpoint, "cd"))
    pool.scheduler.retain(pool.members)
    assert [await decided(each) for each in (other, late)] == ["picked"] * 2


async def test_without_any_event_a_wait_ends() -> None:
    pool = Pool(QueueLimits(max_requests=1, max_seconds=0.001))
    await pool.picked()
    assert await decided(pool.ask()) == "expired"
    # What a server told is too old to count after a while, which nobody tells.
    stale = Pool(QueueLimits(max_queued=1))
    stale.scheduler.observe(SERVER, LoadReport(stale.now() - 1.99, queued=3))
    assert await decided(stale.ask()) == "picked"


async def test_who_leaves_in_the_turn_of_the_decision_leaves_nothing_behind() -> None:
    pool = Pool()
    first = await pool.picked()
    waits, next_one = pool.ask(), pool.ask()
    await asyncio.sleep(0)
    first.placement.finish(None, pool.now())
    pool.dispatcher.serve(pool.now())
    assert pool.waiting == [(0, 1)]
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    made = await next_one
    assert isinstance(made, Pick)
    made.placement.finish(None, pool.now())
    assert counters(pool.scheduler.server(SERVER)) == NOTHING


async def test_ten_thousand_who_leave_at_random_leave_nothing_behind() -> None:
    pool, draw = Pool(QueueLimits(max_waiting=50, max_requests=3, sheddable=True)), Random(1)
    open_ones: list[asyncio.Task[Pick | Rejection]] = []
    ended: Counter[str] = Counter()

    async def end(task: asyncio.Task[Pick | Rejection]) -> None:
        task.cancel()
        (made,) = await asyncio.gather(task, return_exceptions=True)
        ended[type(made).__name__] += 1
        if isinstance(made, Pick):
            made.placement.finish(None, pool.now())

    for _ in range(10_000):
        open_ones.append(pool.ask(draw.randrange(-1, 3)))
        if draw.random() < 0.3:
            await asyncio.sleep(0)
        if len(open_ones) > 60:
            await end(open_ones.pop(draw.randrange(len(open_ones))))
    while open_ones:
        await end(open_ones.pop())
    assert all(ended[name] > 100 for name in ("Pick", "Rejection", "CancelledError"))
    assert pool.waiting == []
    assert counters(pool.scheduler.server(SERVER)) == NOTHING
