"""Scheduler <-> bus: exchanges placements with the other schedulers of the same pools."""

import asyncio
from contextlib import AsyncExitStack, suppress

import structlog
from typing_extensions import override

from tg_base.bus import Bus
from tg_base.runtime import Entered, running
from tg_base.telemetry import POISON, new_id
from tg_picker.core import DEFAULT_TIMING, Scheduler, SharedState, SharingTiming
from tg_picker.pools.followed_pools import FollowedPools
from tg_schema import TgError

log = structlog.get_logger()

FLUSH_SECONDS = 0.02
"""Seconds between two batches. After a longer pause, a placement is published at once."""
MAX_LOOP_SHARE = 0.25
"""Largest share of the event loop's time that other schedulers' messages may take."""
BURST_SECONDS = 0.1
"""Seconds by which the messages may exceed that share before reading pauses, for example at the start."""
MAX_UNREAD = 100
"""Most messages that wait to be read: at most 100 MiB."""
PUBLISH_SECONDS = 1.0
"""Timeout of publishing a message, in seconds. The others notice the gap."""


class PlacementExchange(Entered):
    """Shares the knowledge of all schedulers over a topic. If the bus is lost, picks use what is known.

    The log says once that the bus is lost (`placements.alone`), and once that it works again (`placements.shared`).

    Args:
        bus: the bus, which must outlive this.
        topic: a non-persistent topic, common to all schedulers whose pools have servers in common.
        scheduler: our scheduler.
        pools: the scheduler's pools, which must be entered before this.
        timing: the timing of heartbeats and questions.
        retry: seconds before a subscription that ended is tried again.

    Attributes:
        shared: what is known of the other schedulers.
    """

    def __init__(
        self,
        bus: Bus,
        topic: str,
        scheduler: Scheduler,
        pools: FollowedPools,
        *,
        timing: SharingTiming = DEFAULT_TIMING,
        retry: float = 1.0,
    ) -> None:
        super().__init__()
        self._bus = bus
        self._topic = topic
        self._pools = pools
        self._timing = timing
        self._retry = retry
        self._woken = asyncio.Event()
        self._woken.set()  # publish at once, so that the others learn of us
        self._lost: set[str] = set()
        self.shared = SharedState(scheduler, pools.find, int(new_id()[:15], 16), self._woken.set, timing)

    @override
    async def _start(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._flush)
        stack.enter_context(self._pools.follow(lambda _: self.shared.refresh()))
        await stack.enter_async_context(running(self._listen()))
        await stack.enter_async_context(running(self._publish_batches()))

    async def _publish_batches(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timing.heartbeat / 2):
                    await self._woken.wait()
            self._woken.clear()
            await self._flush()
            await asyncio.sleep(FLUSH_SECONDS)

    async def _flush(self) -> None:
        """Publish everything that the others do not know yet.

        There is no message for the end, because anybody could send one. The others drop our requests when our
        heartbeats stop.
        """
        for body in self.shared.flush(asyncio.get_running_loop().time()):
            if not await self._publish(body):
                break

    async def _publish(self, body: bytes) -> bool:
        try:
            async with asyncio.timeout(PUBLISH_SECONDS):
                await self._bus.publish(self._topic, body, {})
        except (TgError, TimeoutError) as error:
            self._note("publish", error)
            return False
        self._note("publish", None)
        return True

    async def _listen(self) -> None:
        clock, busy_until = asyncio.get_running_loop().time, 0.0
        while True:
            try:
                async with self._bus.subscribe(self._topic, None, prefetch=MAX_UNREAD) as deliveries:
                    self._note("subscribe", None)
                    async for delivery in deliveries:
                        began = clock()
                        if not self.shared.receive(delivery.body, began):
                            POISON.labels(self._topic).inc()
                        # A backlog of messages must not delay requests. If the bus drops messages meanwhile, we notice
                        # the gap and ask for a snapshot.
                        busy_until = max(busy_until, began) + (clock() - began) / MAX_LOOP_SHARE
                        await asyncio.sleep(max(busy_until - clock() - BURST_SECONDS, 0))
            except TgError as error:
                self._note("subscribe", error)
            await asyncio.sleep(self._retry)

    def _note(self, what: str, error: Exception | None) -> None:
        """Note whether a part works. The log says when the first part fails, and when all parts work again."""
        was_lost = bool(self._lost)
        (self._lost.discard if error is None else self._lost.add)(what)
        if error is not None and not was_lost:
            reason = error.message if isinstance(error, TgError) else "the bus does not answer"
            log.warning("placements.alone", topic=self._topic, reason=reason)
        elif was_lost and not self._lost:
            log.info("placements.shared", topic=self._topic)
