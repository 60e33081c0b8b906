"""Processor -> links -> requestors: a link for each requestor, opened, kept alive and closed."""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextvars import Context

from tg_base.bus import Bus
from tg_base.protocol import (
    IDLE_LINK_SECONDS,
    FairSpacing,
    Heartbeat,
    HeartbeatTiming,
    LinkSender,
    Nack,
    StreamKey,
)
from tg_base.runtime import report
from tg_base.telemetry import last_number

RETURN_HEARTBEATS = 2
"""Heartbeat intervals in which a requestor that was declared dead must prove that it is back."""
MAX_REQUESTORS = 10_000
"""Dead requestors that are remembered; beyond this number the oldest is forgotten."""


class LinkPool:
    """Opens a link with a requestor's first request, and closes it when it is idle or the requestor is dead.

    Args:
        bus: carries the links.
        processor: the id of the process.
        timing: when a silent requestor counts as dead.
        time: the clock that silence is measured by, in seconds.
    """

    def __init__(self, bus: Bus, processor: str, timing: HeartbeatTiming, time: Callable[[], float]) -> None:
        self._bus = bus
        self._processor = processor
        self._timing = timing
        self._links: dict[str, LinkSender] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._gone: dict[str, None] = {}
        self._used: set[str] = set()
        self._time = time
        self._spacing = FairSpacing()

    def to(self, inbox: str, delay: float | None = None, least_delay: float = 0.0) -> LinkSender:
        """The link to an inbox, opened if there is none.

        Args:
            inbox: the requestor.
            delay: seconds since the requestor sent the request, and therefore lived; None = not known.
            least_delay: the lower bound of this delay; used if `delay` is not known.
        """
        link = self._links.get(inbox)
        opened = link is None
        if link is None:
            link = self._links[inbox] = LinkSender(self._bus, inbox, self._processor, self._time)
            if inbox in self._gone:
                # A new link counts as heard now, unless its requestor is believed dead: old requests would revive that
                # requestor.
                link.received_at = -math.inf
            # Outside of the request's context: the link outlives it, and its log lines are not of that request.
            sending = asyncio.get_running_loop().create_task(link.run(), context=Context())
            sending.add_done_callback(report)
            self._sending[inbox] = sending
        # A request of unknown age may be an old one from a dead requestor's queue. The first begins a short grace
        # period, which the others share: if each began its own, it would last as long as the queue.
        doubtful = max(self._timing.dead_after - RETURN_HEARTBEATS * self._timing.interval, least_delay)
        if delay is not None or opened or not (link.streams or inbox in self._gone):
            link.received_at = max(link.received_at, self._time() - (doubtful if delay is None else delay))
        return link

    def __iter__(self) -> Iterator[LinkSender]:
        return iter(self._links.values())

    def due_reports(self) -> list[LinkSender]:
        """The links whose state is to be reported to their inbox: those in use now, or at the last call."""
        before, self._used = self._used, {link.inbox for link in self if not link.idle}
        return [link for link in self if link.inbox in before | self._used]

    def over_below(self, inbox: str) -> int:
        """The lowest valid link number for this inbox. Streams of links with a lower number are over."""
        link = self.find(inbox)
        return last_number() + 1 if link is None else link.state.first

    def find(self, inbox: str) -> LinkSender | None:
        """The open link to an inbox; None = there is none."""
        return self._links.get(inbox)

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        """A requestor is alive, and acknowledges what it has received."""
        self.note_alive(heartbeat.inbox)
        if (link := self._links.get(heartbeat.inbox)) is not None:
            link.spacing.wanted = max(heartbeat.spacing, self._fair_spacing)
            if link.name in heartbeat.acks:
                link.acknowledge(heartbeat.acks[link.name])

    @property
    def _fair_spacing(self) -> float:
        frames = ((inbox, link.spacing.frames) for inbox, link in self._links.items())
        return self._spacing.update(frames, self._time())

    def note_alive(self, inbox: str | None) -> None:
        """A requestor is alive."""
        if inbox is not None:
            self._gone.pop(inbox, None)
            if inbox in self._links:
                self._links[inbox].received_at = self._time()

    def on_nack(self, nack: Nack) -> None:
        """A requestor misses messages."""
        link = self._links.get(nack.inbox)
        if link is not None and link.name == nack.link:
            self.note_alive(nack.inbox)
            link.resend(nack.ack)

    def quiet(self, seconds: float) -> bool:
        """Whether any requestor has been silent for this long."""
        limit = self._time() - seconds
        return any(link.received_at < limit for link in self)

    def silent(self, seconds: float) -> list[StreamKey]:
        """The streams of requestors that have been silent for this long, which count as dead from now on."""
        limit = self._time() - seconds
        links = [link for link in self if link.received_at < limit and link.streams]
        for link in links:
            self._remember(link.inbox)
        return [key for link in links for key in link.streams]

    async def sweep(self, seconds: float) -> None:
        """Close the links of requestors that have been silent for this long, and idle links."""
        now = self._time()
        for inbox, link in list(self._links.items()):
            # Use since the last check counts as use now: an idle link is closed up to an interval late.
            if link.used:
                link.used, link.used_at = False, now
            dead = link.received_at < now - seconds and not link.streams
            if dead or (link.idle and link.used_at < now - IDLE_LINK_SECONDS):
                del self._links[inbox]
                await _stop(self._sending.pop(inbox))
            if dead:
                self._remember(inbox)

    def _remember(self, inbox: str) -> None:
        """This requestor is dead."""
        self._gone[inbox] = None
        if len(self._gone) > MAX_REQUESTORS:
            del self._gone[next(iter(self._gone))]

    async def aclose(self, seconds: float) -> None:
        """Give every link this long to send its buffer, then close it."""
        flushes = [asyncio.create_task(link.flush()) for link in self]
        if flushes:
            _, late = await asyncio.wait(flushes, timeout=seconds)
            for flush in late:
                flush.cancel()
        self._links.clear()
        while self._sending:
            await _stop(self._sending.popitem()[1])


async def _stop(sending: asyncio.Task[None]) -> None:
    sending.cancel()
    # `report` logs its error.
    await asyncio.wait([sending])
