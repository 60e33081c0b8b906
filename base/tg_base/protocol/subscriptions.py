"""Bus -> handlers: subscriptions that never end silently.

A subscription can fail: the broker closes it, its client fails, its thread dies. Then it is opened again. Until that
succeeds, its topic is listed in `Subscriptions.failed`, which readiness and presence report. If the bus answers pings
but refuses the subscription for too long, the task that entered `Subscriptions` ends with an error.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context
from types import TracebackType
from typing import Self, cast

import structlog
from typing_extensions import override

from tg_base.bus import Bus, Delivery
from tg_base.runtime import running, translate_defects
from tg_base.telemetry import POISON, READER_ENDS
from tg_schema import TgError
from tg_schema.errors import BusError, Internal

log = structlog.get_logger()

FIRST_PAUSE_SECONDS = 0.1
"""Pause between the first two attempts to reopen a subscription; it doubles with each attempt."""
MAX_PAUSE_SECONDS = 2.0
"""Longest pause between two attempts to reopen a subscription."""
STEADY_SECONDS = 10.0
"""A subscription that was open for this long counts as stable: after its next failure the pauses start anew."""
PING_SECONDS = 10.0
"""Seconds that the bus has to answer a ping."""
MAX_TURN_BYTES = 256 * 1024
"""Bytes of messages, `MESSAGE_BYTES` added to each, that are handled before the rest of the process has its turn."""
MESSAGE_BYTES = 256
"""Bytes counted for each message besides its body."""


class Subscriptions:
    """All subscriptions of one end of the bus. Enter it, then open them inside.

    Args:
        bus: the bus to read.
        give_up: seconds that the bus may refuse a subscription while it answers pings.
        on_change: called whenever `failed` has changed.

    Attributes:
        patience: `give_up`.

    Raises:
        BusError: on leaving, a subscription could not be reopened. The task that entered is cancelled to get there.
    """

    def __init__(self, bus: Bus, *, give_up: float, on_change: Callable[[], None] = lambda: None) -> None:
        self._bus = bus
        self._on_change = on_change
        self.patience = give_up
        self._failed: dict[Subscription, None] = {}
        self._lost: BusError | None = None
        self._cancelled = False

    @property
    def failed(self) -> tuple[str, ...]:
        """The topics whose subscription has failed and is not open again yet."""
        return tuple(subscription.topic for subscription in self._failed)

    async def __aenter__(self) -> Self:
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._lost is not None:
            # Our own cancellation becomes the error that caused it; one that came from elsewhere stays counted.
            if self._cancelled and kind is asyncio.CancelledError:
                self._task.uncancel()
            raise self._lost from error

    @asynccontextmanager
    async def open(
        self, topic: str, group: str | None, *, prefetch: int = 1000, context: Context | None = None
    ) -> AsyncIterator["Subscription"]:
        """Subscribe as `Bus.subscribe` does. The iteration ends only when the block is left.

        `context` is that of its tasks, as of `running`.

        Raises:
            BadRequest: `topic` is not a full name.
            BusError: on entering, the bus did not answer in time or refused.
        """
        subscription = Subscription(self, self._bus, topic, group, prefetch)
        try:
            await subscription.subscribe()
            async with running(subscription.keep(), context=context):
                yield subscription
        finally:
            await subscription.leave()
            self._failed.pop(subscription, None)

    @asynccontextmanager
    async def each(
        self, topic: str, handle: Callable[[Delivery], None], context: Context | None = None
    ) -> AsyncIterator[None]:
        """Call `handle` with every message of a topic, until the block is left. No message ends it.

        A message with unreadable properties, or one that `handle` rejects with a TgError, is counted and dropped.
        """
        async with (
            self.open(topic, None, context=context) as deliveries,
            running(_each(deliveries, handle), context=context),
        ):
            yield

    def ended(self, subscription: "Subscription") -> None:
        """This subscription has failed."""
        READER_ENDS.inc()
        self._failed[subscription] = None
        self._on_change()

    def note_opened(self, subscription: "Subscription") -> None:
        """This subscription is open again."""
        self._failed.pop(subscription, None)
        self._on_change()

    async def answers(self) -> bool:
        """Whether the bus answers a ping."""
        return await answers(self._bus, PING_SECONDS)

    def give_up(self, subscription: "Subscription", error: TgError) -> None:
        """End the task that entered, because this subscription cannot be reopened."""
        log.critical("reading.given_up", topic=subscription.topic, reason=error.message)
        self.end(
            BusError(
                f"the bus answers, but has refused the subscription to {subscription.topic} for {self.patience:g} s: "
                f"{error.message}"
            )
        )

    def end(self, error: BusError) -> None:
        """End the task that entered, with this error."""
        if self._lost is None:
            self._lost = error
            self._cancelled = self._task.cancel()


class Subscription(AsyncIterator[Delivery]):
    """One subscription. Several tasks may wait; each message goes to one of them, and a cancelled wait loses none."""

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
        # Every task that waits sees the end of the same iterator; only the first of them reports it. One that comes
        # late must not close what has been opened again since.
        if self._left or deliveries is not self._deliveries:
            return
        self._deliveries = None
        if isinstance(error, TgError):
            self._why = error
        unforeseen = error if error is not None and not isinstance(error, TgError) else None
        log.warning("subscription.ended", topic=self.topic, reason=self._why.message, exc_info=unforeseen)
        self._open.clear()
        self._ended.set()
        self._subscriptions.ended(self)

    async def subscribe(self) -> None:
        """Subscribe."""
        async with AsyncExitStack() as stack:
            subscription = self._bus.subscribe(self.topic, self._group, prefetch=self._prefetch)
            self._deliveries = await stack.enter_async_context(subscription)
            self._stack = stack.pop_all()
        self._opened_at = self._time()
        self._ended.clear()
        self._open.set()

    async def leave(self) -> None:
        """Unsubscribe, and wake every task that waits."""
        self._left = True
        self._open.set()
        await self._stack.aclose()

    async def keep(self) -> None:
        """Reopen it whenever it has failed, until cancelled or given up."""
        # The first attempt comes at once: mostly the broker has only moved the topic.
        pause = 0.0
        while True:
            await self._ended.wait()
            await self._stack.aclose()
            if self._time() - self._opened_at > STEADY_SECONDS:
                pause = 0.0
            refused_since: float | None = None
            while not await self._reopen_after(pause):
                pause = min(max(2 * pause, FIRST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
                # Wait as long as it takes for a bus that is down. If it answers pings but refuses this topic, an
                # operator must act, and learns that from the error with which the process ends.
                if not await answers(self._bus, PING_SECONDS):
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
        log.info("subscription.reopened", topic=self.topic)
        self._subscriptions.note_opened(self)
        return True


async def answers(bus: Bus, seconds: float) -> bool:
    """Whether a bus answers a ping in this time."""
    try:
        async with asyncio.timeout(seconds):
            await bus.ping()
    except (TgError, TimeoutError):
        return False
    return True


async def _each(deliveries: Subscription, handle: Callable[[Delivery], None]) -> None:
    topic, taken = deliveries.topic, 0
    while True:
        try:
            # Outside the loop: inside it, every chunk would pay for entering the context.
            with translate_defects(Internal, "a message could not be handled", "message.defect", log.bind(topic=topic)):
                async for delivery in deliveries:
                    # Properties are decoded lazily. Read here, unreadable ones drop this message and end nothing.
                    _ = delivery.properties
                    handle(delivery)
                    taken += len(delivery.body) + MESSAGE_BYTES
                    # Iterating over buffered messages never suspends: without this, one turn would handle them all.
                    if taken >= MAX_TURN_BYTES:
                        taken = 0
                        await asyncio.sleep(0)
        except Internal:
            POISON.labels(topic).inc()
        except TgError as error:
            POISON.labels(topic).inc()
            log.warning("message.refused", topic=topic, reason=error.message)
        else:
            return
