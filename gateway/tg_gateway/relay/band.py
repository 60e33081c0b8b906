"""Answers that wait -> topic of the bus -> any gateway, when their model has room: a band below all other work.

An answer is in two places: its log, as of any in the background, says how it stands; a message on the band's topic says
that somebody has to make it. The message is acknowledged when the log has its end. So what waits outlives its gateway,
and what was taken is asked once: who gets the message again finds in the log who has taken it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import structlog

from tg_base.bus import Delivery
from tg_base.client import Requestor
from tg_base.protocol import HeartbeatTiming, Route, Subscriptions
from tg_base.runtime import report, running, translate_defects
from tg_base.telemetry import BAND, POISON
from tg_gateway.dialects import Ask, Call, Catalogue, Dialect
from tg_gateway.dialects.answers import Background, Waiting
from tg_gateway.relay.background_runs import AttemptLost, BackgroundRuns
from tg_gateway.relay.band_bounds import BandBounds
from tg_gateway.relay.claim import Claim
from tg_gateway.relay.relay import DEFECT_MESSAGE, DRAIN_ERROR_SECONDS
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TEXT_COMPLETION, TgError, decode, encode
from tg_schema.errors import BadRequest, Internal, RateLimited

log = structlog.get_logger()

GROUP: Final = "tg-band"
ROOM_CHECK_SECONDS: Final = 0.1
"""Between two looks for room, unless an answer of the band has ended: processors announce themselves once a second."""
MIN_PAUSE_SECONDS: Final = 0.5
"""After a first refusal, unless the provider asks for more in `retry_after`; it doubles with each."""
MAX_HELD_MESSAGES: Final = 64
"""Of one model, whose keys are over their limits: beyond it nothing more is taken until one is let go."""


class BandMessage(msgspec.Struct, frozen=True):
    """What travels: enough for any gateway to ask the same again.

    Attributes:
        name: of the answer's log.
        until: when it expires, by the wall clock.
        dialect: of its `Waiting`; so is `body`.
        key: the name of the API key that asked.
        request: the id of the request.
    """

    name: str
    until: float
    dialect: str
    body: msgspec.Raw
    key: str | None
    request: str


@dataclass(slots=True)
class _Lane:
    """The band of one model.

    Attributes:
        starting: names of messages in hand for which no model has been asked yet.
        held: how many wait here until their keys may ask again.
        asked: names of those that a model was asked for and has neither ended nor refused.
        window: how many of them may be at a time, for a while after a refusal; None = as many as find room. A pool
            refuses what its servers have no room for, though its processor has.
        refusals: how many rounds of refusals came one after the other.
        refused_at: when the latest came (loop time).
        resume_at: after a refusal: when to take the next (loop time).
        freed: something has ended, so there may be room.
    """

    route: Route[Any, Any]
    topic: str
    longest_pause: float
    starting: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    held: int = 0
    window: int | None = None
    refusals: int = 0
    refused_at: float = 0.0
    resume_at: float = 0.0
    freed: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self, event: str) -> None:
        """Count what became of one."""
        BAND.labels(self.route.spec.name, event).inc()

    @property
    def is_open(self) -> bool:
        """Whether the next may be taken, as far as refusals tell."""
        now = asyncio.get_running_loop().time()
        if now < self.resume_at or self.held >= MAX_HELD_MESSAGES:
            return False
        # Those that run may take long, and what had no room beside them may have it when others have left.
        if self.window is None or now >= self.refused_at + self.longest_pause:
            return True
        return len(self.asked | self.starting) < max(self.window, 1)

    def end(self) -> None:
        """One has ended well: its room is free, and perhaps there is more."""
        self.refusals, self.resume_at = 0, 0.0
        if self.window is not None:
            self.window += 1

    def pause(self, seconds: float | None) -> None:
        """Take nothing for a while: each attempt costs two entries of a log."""
        self.window, self.refused_at = len(self.asked), asyncio.get_running_loop().time()
        if self.refused_at < self.resume_at:
            # Of several that were asked for at once each is refused: it is one round.
            return
        wait = max(seconds or 0.0, MIN_PAUSE_SECONDS * 2.0**self.refusals)
        self.resume_at = self.refused_at + min(wait, self.longest_pause)
        self.refusals = min(self.refusals + 1, 10)

    async def hold(self, seconds: float | None) -> None:
        """Wait with one message, while others are taken."""
        self.held += 1
        try:
            await asyncio.sleep(min(max(seconds or 0.0, MIN_PAUSE_SECONDS), self.longest_pause))
        finally:
            self.held -= 1


class Band:
    """Enter it to take what waits. Drain it before the gateway's relay; leave it after.

    Args:
        requestor: says where there is room.
        runs: make the answers.
        catalogue: has the models.
        dialects: by `Dialect.restarts`.
        bounds: of what may wait.
        longest_pause: seconds until the next is taken after a refusal, at most.
    """

    def __init__(
        self,
        requestor: Requestor,
        runs: BackgroundRuns,
        catalogue: Catalogue,
        dialects: Mapping[str, Dialect],
        bounds: BandBounds,
        *,
        longest_pause: float,
    ) -> None:
        self._bus, self._topics = requestor.bus, requestor.topics
        self._requestor = requestor
        self._runs = runs
        self._logs, self._answers = runs.store.logs, runs.store.waiting
        self._catalogue = catalogue
        self._dialects = dialects
        self._bounds = bounds
        routes = [each for each in catalogue.routes if each.spec.name == TEXT_COMPLETION.name and not each.plain]
        self._lanes = {route.request: _Lane(route, self._topics.band(route.request), longest_pause) for route in routes}
        self._deliveries: dict[str, Delivery] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._making: set[asyncio.Task[Any] | None] = set()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            subscriptions = Subscriptions(self._bus, give_up=HeartbeatTiming().give_up)
            await stack.enter_async_context(subscriptions)
            opened = [
                # Without prefetch: what one gateway holds, another one that has room cannot take.
                (lane, await stack.enter_async_context(subscriptions.open(lane.topic, GROUP, prefetch=0)))
                for lane in self._lanes.values()
            ]
            self._pumps = await stack.enter_async_context(AsyncExitStack())
            for lane, messages in opened:
                await self._pumps.enter_async_context(running(self._pump(lane, messages)))
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.drain()
        if making := self._tasks & self._making:
            # The relay has failed what they have asked, and they say so in their logs: else readers wait for silence.
            await asyncio.wait(making, timeout=DRAIN_ERROR_SECONDS)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # What is not acknowledged goes to another gateway.
        await self._exit.aclose()

    async def drain(self) -> None:
        """Take no more."""
        await self._pumps.aclose()

    async def put(self, asked: Ask, background: Background, waiting: Waiting, entry: AccessLogEntry) -> None:
        """Return once the answer waits, whatever becomes of this process.

        Raises:
            BadRequest, Unavailable: as `Requestor.check`.
            RateLimited: as many wait as may.
            TooLarge, BusError: the bus did not take it; it does not wait.
        """
        lane, name = self._lanes[asked.route.request], background.name
        self._logs.check_size(background.head)
        await self._requestor.check(asked.route, asked.request)
        await self._bounds.admit(entry.key, name, waiting.seconds, lane.route.spec.name)
        async with AsyncExitStack() as undo:
            # Nobody has been told its name: who leaves now could never ask for it.
            undo.push_async_callback(self._withdraw, name)
            until = await self._answers.put(entry.key, background, waiting.seconds, waiting.attempts)
            body = msgspec.Raw(waiting.body)
            message = BandMessage(name, until, waiting.dialect, body, entry.key, entry.request)
            await self._bus.publish(lane.topic, encode(message), {})
            undo.pop_all()
        lane.count("put")

    async def _withdraw(self, name: str) -> None:
        self._bounds.forget(name)
        await self._logs.sweep(name)

    def takes(self, asked: Ask) -> bool:
        """Whether an answer of this service can wait."""
        return asked.route.request in self._lanes

    async def _pump(self, lane: _Lane, messages: AsyncIterator[Delivery]) -> None:
        """Take one message after the other, each when there is room or when it has expired."""
        async for delivery in messages:
            try:
                message = decode(BandMessage, delivery.body)
            except BadRequest:
                POISON.labels(lane.topic).inc()
                delivery.ack()
                continue
            known = message.name in self._deliveries
            # After a lost connection the broker delivers again what is not acknowledged; only the newest can be.
            self._deliveries[message.name] = delivery
            if not known:
                await self._until_room(lane, message.until)
                lane.starting.add(message.name)
                task = asyncio.create_task(self._take(lane, message), name="band")
                self._tasks.add(task)
                task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        report(task)

    async def _until_room(self, lane: _Lane, until: float) -> None:
        """Wait until the model would begin one more at once and nobody waits for it, or until the time is over."""
        while time.time() < until:
            if lane.is_open and self._requestor.admission.room(lane.route.request) > len(lane.starting):
                return
            lane.freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(ROOM_CHECK_SECONDS):
                    await lane.freed.wait()

    async def _take(self, lane: _Lane, message: BandMessage) -> None:
        ended = False
        try:
            with translate_defects(Internal, DEFECT_MESSAGE, "band.defect", log):
                ended = await self._see_to(lane, message)
        except TgError as error:
            log.warning("band.failed", topic=lane.topic, error=error.type)
            lane.pause(error.retry_after)
        finally:
            lane.starting.discard(message.name)
            lane.freed.set()
            delivery = self._deliveries.pop(message.name)
            if ended:
                self._bounds.forget(message.name)
                delivery.ack()
            else:
                delivery.nack()

    async def _see_to(self, lane: _Lane, message: BandMessage) -> bool:
        """Make one answer, end it, or wait for who makes it; whether it has its end.

        Raises:
            BusError: the bus did not answer.
        """
        name = message.name
        claim = await self._answers.claim(message.key, name)
        if claim is None:
            lane.count("dropped")
            return True
        if not claim.mine:
            # A message that came twice, or whose gateway has died after a model may have been asked.
            return await self._outlast(lane, name, claim)
        if claim.log.again:
            lane.count("again")
        if time.time() >= message.until:
            await self._logs.declare(name, claim.log.overdue)
            lane.count("expired")
            return True
        lane.count("taken")
        return await self._make(lane, message, claim)

    async def _outlast(self, lane: _Lane, name: str, claim: Claim) -> bool:
        lane.starting.discard(name)
        return not await self._answers.outlast(name, claim)

    async def _make(self, lane: _Lane, message: BandMessage, claim: Claim) -> bool:
        name = message.name
        try:
            asked, background = self._restart(message)
        except TgError as error:
            log.warning("band.unreadable", topic=lane.topic, error=error.type)
            await self._logs.declare(name, "died")
            return True
        entry = AccessLogEntry("background", message.request, key=message.key)
        task = asyncio.current_task()
        self._making.add(task)
        lane.asked.add(name)
        try:
            if not await self._runs.go_on(asked, background, entry, claim, lambda: lane.starting.discard(name)):
                lane.asked.discard(name)
                return await self._outlast(lane, name, claim)
        except TgError as error:
            lane.asked.discard(name)
            if not error.retryable:
                await self._logs.declare(name, "ended", background.finish(error, cancelled=False))
                lane.end()
                return True
            if isinstance(error, AttemptLost):
                await self._answers.give_back(name, claim, spent=True)
                return False
            await self._answers.give_back(name, claim)
            lane.count("returned")
            # Refused before the service was asked, by a limit of its key: the model has room for those of others.
            if isinstance(error, RateLimited) and name in lane.starting:
                lane.starting.discard(name)
                await lane.hold(error.retry_after)
            else:
                lane.pause(error.retry_after)
            return False
        finally:
            lane.asked.discard(name)
            self._making.discard(task)
        lane.end()
        return True

    def _restart(self, message: BandMessage) -> tuple[Ask, Background]:
        """The ask again.

        Raises:
            TgError: this gateway cannot make it.
        """
        dialect = self._dialects.get(message.dialect)
        if dialect is None:
            raise BadRequest("no dialect of this gateway has this name")
        asked = dialect.restart(Call("", self._catalogue, {}, {}, {}, message.request, bytes(message.body)))
        if asked.background is None or asked.background.name != message.name:
            raise BadRequest("this is another answer")
        return asked, asked.background
