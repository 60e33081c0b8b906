"""Door or pool provider -> scheduler: a server for each request from the current pools, and a record of the pick."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import starmap
from time import perf_counter

from typing_extensions import override

from tg_base.bus import Bus
from tg_base.runtime import Entered
from tg_picker.core import Endpoint, InstanceRequest, Pick, QueueLimits, Rejection, Scheduler
from tg_picker.pools import Dispatcher
from tg_picker.pools.adapter_loader import AdapterLoader
from tg_picker.pools.followed_pools import FollowedPools
from tg_picker.pools.placement_exchange import PlacementExchange
from tg_picker.status import BOARDS, PoolBoard, QueueStatus, RequestFacts, RequestRecord
from tg_schema.topics import Topics


class PoolPicker(Entered):
    """A scheduler, the parts that keep it informed, and its board. Enter it to follow the pools.

    Args:
        name: the picker's name, for the page.
        policy: the name of the scheduler's policy, for the page.
        scheduler: the scheduler that picks.
        pools: the scheduler's pools, which are entered together with this.
        limits: how many requests may wait in each pool.
        clock: the scheduler's clock, in seconds.
        adapter_source: see `AdapterLoader`.

    Attributes:
        scheduler, pools, clock: the same.
        dispatcher: lets requests wait.
        board: is notified of every decision.
        loader: makes servers load adapters.
    """

    def __init__(
        self,
        name: str,
        policy: str,
        scheduler: Scheduler,
        pools: FollowedPools,
        *,
        limits: QueueLimits,
        clock: Callable[[], float],
        adapter_source: str = "",
    ) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.pools = pools
        self.clock = clock
        self.dispatcher = dispatcher = Dispatcher(scheduler, limits, clock)
        self.loader = AdapterLoader(adapter_source, scheduler)
        self.board = PoolBoard(
            name,
            policy,
            scheduler,
            pools,
            clock,
            totals=BOARDS.totals,
            queues=lambda: starmap(QueueStatus, dispatcher.queues),
            attainment=lambda: dispatcher.attainment.read(clock()),
        )

    @override
    async def _start(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.pools)
        stack.enter_context(BOARDS.show(self.board))

    async def share(self, bus: Bus, topics: Topics) -> None:
        """Exchange placements with other pickers over a bus until this one is left. Call it after entering."""
        await self._exit.enter_async_context(PlacementExchange(bus, topics.placements, self.scheduler, self.pools))

    async def place(
        self,
        request: InstanceRequest,
        pool: str | None,
        endpoints: Callable[[], Sequence[Endpoint]],
        describe: Callable[[], RequestFacts],
        *,
        arrived_at: float,
        size: int = 0,
        again: bool = False,
    ) -> tuple[Pick | Rejection, RequestRecord]:
        """Find a server for a request, which may have to wait for one. If this is cancelled, nothing is left behind.

        Args:
            request: the request to place.
            pool: the pool in whose queue it may wait; None = it does not wait.
            endpoints: returns the servers that are eligible at the moment of the call.
            describe: describes the request for the board; called after `endpoints`.
            arrived_at: when the request arrived, on the clock.
            size: bytes that are held while it waits.
            again: whether an earlier attempt at it was placed.
        """
        now, began = self.clock(), perf_counter()
        if pool is None:
            made = self.scheduler.pick(request, endpoints(), now)
            seconds = perf_counter() - began
        else:
            waiting = self.dispatcher.submit(pool, request, endpoints, now, arrived_at=arrived_at, size=size)
            seconds = perf_counter() - began
            made = await self.dispatcher.wait(pool, waiting)
        record = self.board.record(describe(), request, made, seconds, again=again, arrived_at=arrived_at)
        return made, record
