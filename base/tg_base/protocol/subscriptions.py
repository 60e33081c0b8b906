"""Bus -> handlers: subscriptions that never end in silence.

A subscription may end by itself: the broker closes it, its client fails, its thread dies. Then it is opened again.
Until that has worked, its topic is listed in `Subscriptions.deaf`, which readiness and presence report. Where the bus
answers and yet refuses the subscription for too long, the task that entered `Subscriptions` ends with an error.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self, cast

import structlog
from typing_extensions import override

from tg_base.bus import Bus, Delivery
from tg_base.runtime import running
from tg_base.telemetry import POISON, READER_ENDS
from tg_schema import TgError
from tg_schema.errors import BadRequest, BusError

log = structlog.get_logger()

FIRST_PAUSE_SECONDS = 0.1
"""Between the first two tries to open a subscription again; it doubles with each try, ..."""
MAX_PAUSE_SECONDS = 2.0
"""... up to this."""
STEADY_SECONDS = 10.0
"""A subscription that has lived for so long was a good one: the next end of it is the first again."""
PING_SECONDS = 10.0


class Subscriptions:
    """All subscriptions of one end of the bus. Enter it, then open them inside.

    Args:
        bus: what is read.
        give_up: seconds that the bus may refuse a subscription while it answers pings.
        on_change: called whenever `deaf` has changed.

    Raises:
        BusError: on leaving: a subscription could not be opened again. Until then the task that entered is cancelled.
    """

    def __init__(self, bus: Bus, *, give_up: float, on_change: Callable[[], None] | None = None) -> None:
        self._bus = bus
        self._on_change = on_change
        self._give_up = give_up
        self._deaf: dict[Subscription, None] = {}
        self._lost: BusError | None = None
        self._cancelled = False

    @property
    def deaf(self) -> tuple[str, ...]:
        """The topics whose subscription has ended and is not open again yet."""
        return tuple(subscription.topic for subscription in self._deaf)

    async def __aenter__(self) -> Self:
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._lost is not None:
            if self._cancelled and kind is asyncio.CancelledError:
                self._task.uncancel()
            raise self._lost from error

    @asynccontextmanager
    async def open(self, topic: str, group: str | None, *, prefetch: int = 1000) -> AsyncIterator["Subscription"]:
        """Subscribe as `Bus.subscribe` does; what this iterates over ends only by leaving.

        Raises:
            BadRequest: `topic` is not a full name.
            BusError: on entering, the bus did not answer in time or refused.
        """
        subscription = Subscription(self, self._bus, topic, group, prefetch)
        try:
            await subscription.subscribe()
            async with running(subscription.keep()):
                yield subscription
        finally:
            await subscription.leave()
            self._deaf.pop(subscription, None)

    @asynccontextmanager
    async def each(self, topic: str, handle: Callable[[Delivery], None]) -> AsyncIterator[None]:
        """Hand every message of a topic to `handle`, until the block is left. No message ends it.

        One that `handle` refuses with BadRequest, or whose properties are unreadable, is counted and dropped.
        """
        async with self.open(topic, None) as deliveries, running(_each(deliveries, handle)):
            yield

    def ended(self, subscription: "Subscription") -> None:
        """This one hears nothing from now on."""
        READER_ENDS.inc()
        self._deaf[subscription] = None
        self._changed()

    def opened(self, subscription: "Subscription") -> None:
        """This one hears again."""
        self._deaf.pop(subscription, None)
        self._changed()

    async def answers(self) -> bool:
        """Whether the bus answers a ping."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self._bus.ping()
        except (TgError, TimeoutError):
            return False
        return True

    @property
    def patience(self) -> float:
        """Seconds that the bus may refuse a subscription while it answers pings."""
        return self._give_up

    def give_up(self, subscription: "Subscription", error: TgError) -> None:
        """End the task that entered: there is no hope for this one."""
        if self._lost is None:
            self._lost = BusError(
                f"the bus answers, but has refused to let us read {subscription.topic} for {self._give_up:g} s: "
                f"{error.message}"
            )
            log.critical("reading.given_up", topic=subscription.topic, reason=error.message)
            self._cancelled = self._task.cancel()

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()


class Subscription(AsyncIterator[Delivery]):
    """One of them. Several tasks may wait: each message goes to one of them, and a cancelled wait loses none."""

    def __init__(self, subscriptions: Subscriptions, bus: Bus, topic: str, group: str | None, prefetch: int) -> None:
        self.topic = topic
        self._subscriptions = subscriptions
        self._bus = bus
        self._group = group
        self._prefetch = prefetch
        self._time = asyncio.get_running_loop().time
        self._stack = AsyncExitStack()
        self._deliveries: AsyncIterator[Delivery] | None = None
        self._open = asyncio.Event()
        self._ended = asyncio.Event()
        self._why: TgError = BusError("the subscription has ended")
        self._opened_at = 0.0
        self._left = False

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Delivery:
        while True:
            if self._left:
                raise StopAsyncIteration
            deliveries = self._deliveries
            if deliveries is None:
                await self._open.wait()
                continue
            try:
                return await anext(deliveries)
            except StopAsyncIteration:
                self._end(deliveries, None)
            except Exception as error:  # noqa: BLE001 - whatever ended it, it is opened again
                self._end(deliveries, error)

    def _end(self, deliveries: AsyncIterator[Delivery], error: Exception | None) -> None:
        if self._left or deliveries is not self._deliveries:
            return
        self._deliveries = None
        if isinstance(error, TgError):
            self._why = error
        unforeseen = error if error is not None and not isinstance(error, TgError) else None
        log.warning("reading.ended", topic=self.topic, reason=self._why.message, exc_info=unforeseen)
        self._open.clear()
        self._ended.set()
        self._subscriptions.ended(self)

    async def subscribe(self) -> None:
        """Open it."""
        async with AsyncExitStack() as stack:
            subscription = self._bus.subscribe(self.topic, self._group, prefetch=self._prefetch)
            self._deliveries = await stack.enter_async_context(subscription)
            self._stack = stack.pop_all()
        self._opened_at = self._time()
        self._ended.clear()
        self._open.set()

    async def leave(self) -> None:
        """Unsubscribe, and end all waiting."""
        self._left = True
        self._open.set()
        await self._stack.aclose()

    async def keep(self) -> None:
        """Open it again whenever it has ended, until cancelled, or until there is no hope."""
        pause = 0.0
        while True:
            await self._ended.wait()
            await self._stack.aclose()
            if self._time() - self._opened_at > STEADY_SECONDS:
                pause = 0.0
            refused_since: float | None = None
            while not await self._reopen_after(pause):
                pause = min(max(2 * pause, FIRST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
                if not await self._subscriptions.answers():
                    refused_since = None
                elif refused_since is None:
                    refused_since = self._time()
                elif self._time() - refused_since > self._subscriptions.patience:
                    return self._subscriptions.give_up(self, self._why)
            pause = FIRST_PAUSE_SECONDS

    async def _reopen_after(self, pause: float) -> bool:
        await asyncio.sleep(pause)
        try:
            await self.subscribe()
        except TgError as error:
            self._why = error
            return False
        log.info("reading.opened_again", topic=self.topic)
        self._subscriptions.opened(self)
        return True


async def _each(deliveries: Subscription, handle: Callable[[Delivery], None]) -> None:
    async for delivery in deliveries:
        try:
            _ = delivery.properties
            handle(delivery)
        except BadRequest as error:
            POISON.labels(deliveries.topic).inc()
            log.warning("message.refused", topic=deliveries.topic, reason=error.message)
        except Exception:
            POISON.labels(deliveries.topic).inc()
            log.exception("message.defect", topic=deliveries.topic)
