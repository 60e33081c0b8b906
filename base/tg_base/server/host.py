"""Control topics -> host -> processors: the resources that the processors of one process share.

The host has the process's id, the one reader of its control topics, its one link to each inbox and its heartbeat. A
processor has its own queues, slots and service.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import msgspec
import structlog

from tg_base.bus import Bus, Delivery
from tg_base.protocol import (
    CONTROL,
    KIND_PROPERTY,
    QUEUE_PROPERTY,
    Adopt,
    Announce,
    AwakeClock,
    Cancel,
    Confirmed,
    Echo,
    Heartbeat,
    HeartbeatTiming,
    KeptStream,
    LinkReport,
    LinkStream,
    Nack,
    Outbox,
    Presence,
    PublisherClocks,
    RequestHeaders,
    StreamKey,
    Subscriptions,
    UsageWriter,
)
from tg_base.runtime import is_set_within, running, translate_defects
from tg_base.server.body_receiver import BodyReceiver
from tg_base.server.link_pool import LinkPool
from tg_base.server.request_task import RequestTask
from tg_base.server.tombstones import Tombstones
from tg_base.telemetry import new_id
from tg_schema import TgError, decode, encode
from tg_schema.errors import Internal, Unavailable
from tg_schema.topics import Topics

log = structlog.get_logger()

FLUSH_SECONDS = 1.0
"""Seconds that leaving waits for the links, for the last announcement, and for the records of usage."""
ADOPTABLE_SECONDS = 30.0
"""Seconds for which a kept answer continues without its requestor, and can be adopted after its end."""
_LOST = Unavailable("the processor has lost its requestor; ask again")
MAX_BIRTHS = 10_000
"""How many inboxes keep a record of their first process."""
_REPORT = {KIND_PROPERTY: "report"}
_PRESENCE = {KIND_PROPERTY: "presence"}
TakeDirect = Callable[[Delivery, RequestHeaders], bool]
"""Tries to begin a request that was sent to this process directly; returns whether it did."""


class Host:
    """The serving end of one process on one bus. Enter it before the processors that use it, and leave it after them.

    Args:
        bus: carries everything.
        topics: the names of our own topics.
        timing: the heartbeat interval, and when a silent requestor counts as dead.

    Attributes:
        name: the id of the process, new at every start.
        topics: as given.
        timing: the given timing, or the default.
        kept: the answers that another requestor may adopt, by stream.
        running: the requests of all its processors, so that no attempt runs twice, whichever processor takes a second
            copy.
        changed: set it to announce presence before the next heartbeat.
        announce_error: why the bus has not taken any announcement so far; None = it has, or none was made.

    Attributes, once it is entered:
        links: the links to the requestors. publishers: the clocks of the requestors. bodies: the bodies of large
        requests. cancelled: attempts that no processor may begin. ended: attempts that no processor may begin again.
        usage: takes the records of the calls of models.
    """

    def __init__(self, bus: Bus, topics: Topics, *, timing: HeartbeatTiming | None = None) -> None:
        self.name = f"host-{new_id(6)}"
        self.topics = topics
        self.timing = timing or HeartbeatTiming()
        self.running: dict[StreamKey, RequestTask] = {}
        self.kept: dict[str, KeptStream] = {}
        self.changed = asyncio.Event()
        self._bus = bus
        self._services: dict[str, Callable[[], Presence]] = {}
        self._takers: dict[str, TakeDirect] = {}
        self._opened = 0
        self._number = self._changed_at = -1
        self._announced: dict[str, Presence] = {}
        self._has_announced = False
        self.announce_error: TgError | None = None
        self._births: dict[str, str] = {}
        self._leaves_at: float | None = None
        self._ended = False

    async def __aenter__(self) -> Self:
        time = asyncio.get_running_loop().time
        self._clock = AwakeClock()
        self.cancelled, self.ended = Tombstones(time), Tombstones(time)
        self.bodies = BodyReceiver()
        self.links = LinkPool(self._bus, self.name, self.timing, self._clock)
        self.publishers = PublisherClocks(time)
        self._outbox = Outbox(self._bus)
        self.usage = UsageWriter(self._bus, self.topics.usage)
        control = self.topics.control(self.name)
        self._echo = Echo(self._bus, control, self._clock, self.timing.interval)
        async with AsyncExitStack() as stack:
            self._subscriptions = await stack.enter_async_context(
                Subscriptions(self._bus, give_up=self.timing.give_up, on_change=self.changed.set)
            )
            for topic in (control, self.topics.announce):
                await stack.enter_async_context(self._subscriptions.each(topic, self._on_control))
            stack.callback(self._echo.close)
            stack.callback(self._outbox.close)
            await stack.enter_async_context(running(self.usage.run()))
            await stack.enter_async_context(running(self._watch()))
            await stack.enter_async_context(running(self._send_heartbeats()))
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        # A link that is opened from now on would never be closed.
        self._ended = True
        used = [link.inbox for link in self.links if not link.idle]
        try:
            await self.links.aclose(FLUSH_SECONDS)
            for inbox in used:
                self._report(inbox)
            await self.announce()
            await self._outbox.flush(FLUSH_SECONDS)
            await self.usage.flush(FLUSH_SECONDS)
        finally:
            await self._exit.__aexit__(kind, error, tb)

    @property
    def has_failed_subscription(self) -> bool:
        """Whether a control topic cannot be read now."""
        return bool(self._subscriptions.failed)

    @property
    def faults(self) -> list[str]:
        """Why this process should get no requests, in sentences; empty = it may."""
        faults = {
            "a subscription has ended and is being opened again": self.has_failed_subscription,
            "no service runs here; the log says why": not self._services,
        }
        if self.announce_error is not None:
            faults[f"the bus takes no announcement of this process: {self.announce_error.message}"] = True
        return [sentence for sentence, holds in faults.items() if holds]

    def leave(self) -> None:
        """Note that the process ends: the grace of all its processors begins now, also of those that still serve."""
        self._leaves_at = asyncio.get_running_loop().time()

    def rest_of(self, grace: float) -> float:
        """The seconds left of a processor's grace, which begins now unless `leave` was called earlier."""
        now = asyncio.get_running_loop().time()
        return grace if self._leaves_at is None else max(0.0, grace - (now - self._leaves_at))

    def name_processor(self) -> str:
        """An id for one more processor."""
        self._opened += 1
        return f"{self.name}.{self._opened}"

    def add(self, processor: str, describe: Callable[[], Presence], take: TakeDirect | None = None) -> None:
        """Announce a processor from the next announcement on.

        Args:
            processor: its id.
            describe: describes the processor: its services, and its work since the last call.
            take: called with each request that is sent to this process directly; None = the processor takes none.
        """
        self._services[processor] = describe
        if take is not None:
            self._takers[processor] = take

    def remove(self, processor: str) -> None:
        """The processor of this id has ended."""
        del self._services[processor]
        self._takers.pop(processor, None)
        self.changed.set()

    async def announce(self) -> None:
        """Announce presence to all requestors, and the state of each link that is in use to its inbox.

        If the bus does not accept it, the log says so; the next announcement repeats everything.
        """
        self._number += 1
        number, before = self._number, self._announced
        self._announced = dict(self._describe_all())
        changed = tuple(service for name, service in self._announced.items() if before.get(name) != service)
        gone = tuple(name for name in before if name not in self._announced)
        base, self._changed_at = self._changed_at, number if changed or gone else self._changed_at
        for link in self.links.due_reports():
            self._report(link.inbox)
        # The reports leave first: a requestor subtracts their counts from those of the presence that follows.
        await asyncio.sleep(0)
        record = self._record(changed)
        # The number that was sent: another announcement may have been made meanwhile.
        presence = msgspec.structs.replace(record, number=number, base=base, gone=gone)
        try:
            await self._bus.publish(self.topics.presence, encode(presence), {})
            self.announce_error = None
            self._has_announced = True
        except TgError as error:
            log.warning("presence.lost", reason=error.message)
            self.announce_error = None if self._has_announced else error

    def _record(self, services: tuple[Presence, ...]) -> Presence:
        return Presence(self.name, (), 0, 0, number=self._number, services=services)

    def _describe_all(self) -> Iterator[tuple[str, Presence]]:
        for processor, describe in self._services.items():
            try:
                # A processor whose service has a defect must not silence the others.
                with translate_defects(Internal, "a processor failed to say what it serves", "presence.defect", log):
                    yield processor, describe()
            except Internal:
                if processor in self._announced:
                    yield processor, self._announced[processor]

    def _report(self, inbox: str) -> None:
        link, below = self.links.find(inbox), self.links.over_below(inbox)
        # The running requests of the requestor, by processor.
        keys = map(self._find_first, () if link is None else link.streams)
        counts = Counter(self.running[key].processor for key in keys)
        state = None if link is None else link.state
        self._outbox.put(inbox, LinkReport(self.name, self._number, below, state, dict(counts)), _REPORT)

    def _on_control(self, delivery: Delivery) -> None:
        if QUEUE_PROPERTY in delivery.properties:
            self._on_request(delivery)
            return
        if self._echo.take(delivery) or self.bodies.take(delivery):
            return
        match control := decode(CONTROL, delivery.body):
            case Cancel():
                for key in control.streams:
                    self._cancel(key, control.ttl)
            case Heartbeat():
                self._on_heartbeat(control, delivery.age)
            case Nack():
                self.links.on_nack(control)
            case Confirmed():
                self._on_confirmed(control)
            case Announce():
                self._on_announce(control)
            case Adopt():
                self._on_adopt(control)

    def _find_first(self, key: StreamKey) -> StreamKey:
        """The attempt under which a stream was begun; an adopted stream is answered under a later one."""
        kept = self.kept.get(key.stream)
        return key if kept is None or kept.key != key else kept.first

    def _on_confirmed(self, confirmed: Confirmed) -> None:
        if (work := self.running.get(self._find_first(confirmed.key))) is not None:
            self.links.note_alive(work.inbox)
            work.confirm(confirmed.question)

    def _on_adopt(self, adopt: Adopt) -> None:
        link, found = self.links.to(adopt.inbox), self.kept.get(adopt.key.stream)
        if found is None or adopt.key.attempt <= found.key.attempt:
            missing = LinkStream(link, adopt.key, 0.0)
            missing.signal("returned")
            missing.close()
        else:
            found.move(link, adopt.key, adopt.after)

    def forget_kept(self, stream: str) -> None:
        """A kept answer has ended; for a little longer, a requestor that lacks a part of it can adopt it."""
        asyncio.get_running_loop().call_later(ADOPTABLE_SECONDS, self.kept.pop, stream, None)

    def _on_request(self, delivery: Delivery) -> None:
        """Begin a request that was sent here because its prefix is warm here, or hand it back."""
        call = RequestHeaders.of_direct(delivery, self.publishers)
        if not any(take(delivery, call) for take in self._takers.values()):
            # Hand it back instead of dropping it, so that its requestor queues it at once.
            self.hand_back(call)

    def hand_back(self, call: RequestHeaders) -> None:
        """Tell the requestor that its request is not begun here. If the process is ending, its silence is enough."""
        if call.reply is not None and not self._ended:
            stream = LinkStream(self.links.to(call.reply, call.delay, call.least_delay), call.key, 0.0)
            stream.signal("returned")
            stream.close()

    def _on_heartbeat(self, heartbeat: Heartbeat, age: float) -> None:
        self.publishers.note_heartbeat(heartbeat.inbox, age)
        self.links.on_heartbeat(heartbeat)
        if 0 <= heartbeat.oldest < self.links.over_below(heartbeat.inbox):
            self._report(heartbeat.inbox)
        for key in heartbeat.cancelled:
            # No tombstone: a heartbeat only repeats cancels of running requests, in case the first was lost.
            self._cancel(key, 0.0)

    def _on_announce(self, announce: Announce) -> None:
        if not announce.inbox:
            self.changed.set()
        elif self._number >= 0:
            birth = self._births.setdefault(announce.inbox, announce.birth)
            if len(self._births) > MAX_BIRTHS:
                del self._births[next(iter(self._births))]
            record = self._record(tuple(self._announced.values()))
            self._outbox.put(announce.inbox, msgspec.structs.replace(record, birth=birth), _PRESENCE)

    def _cancel(self, key: StreamKey, ttl: float) -> None:
        if (kept := self.kept.get(key.stream)) is not None and kept.first == key != kept.key:
            # The cancel is of a requestor that has lost the stream to another one.
            return
        work = self.running.get(self._find_first(key))
        if work is not None:
            work.stop()
        # It does not run here: remember it for as long as one of our processors could still take it from its queue.
        elif ttl > 0:
            self.cancelled.add(key, ttl)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self.timing.tick)
            silence = self._death_silence_seconds()
            for key in self.links.silent(silence):
                work = self.running[self._find_first(key)]
                kept = key.stream in self.kept and not work.unconfirmed
                if not kept or key in self.links.silent(silence + ADOPTABLE_SECONDS):
                    work.stop(_LOST)
            await self.links.sweep(silence)
            self.cancelled.sweep()
            self.ended.sweep()

    def _death_silence_seconds(self) -> float:
        """Seconds of silence after which a requestor is dead; infinite in one process or without a subscription."""
        if self._bus.in_process:
            return math.inf
        doubtful = self.links.quiet(self.timing.doubt_after)
        return self.timing.dead_after if self._echo.is_settled(doubtful=doubtful) else math.inf

    async def _send_heartbeats(self) -> None:
        while True:
            await is_set_within(self.changed, self.timing.interval)
            self.changed.clear()
            await self.announce()
