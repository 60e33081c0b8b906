"""Presence, reports and echoes -> the live processes, as one requestor knows them, and its heartbeats to them."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tg_base.bus import Bus, Delivery
from tg_base.client.asked_stream import AskedStream
from tg_base.client.control_sender import ControlSender
from tg_base.client.inbox import Inbox
from tg_base.client.membership import Membership
from tg_base.client.shared_time import SharedTime
from tg_base.protocol import (
    KIND_PROPERTY,
    PEER_PROPERTY,
    Announce,
    AwakeClock,
    Echo,
    HeartbeatTiming,
    LinkReport,
    Presence,
    Route,
)
from tg_base.telemetry import new_id
from tg_schema import decode
from tg_schema.errors import BadRequest, BusError, Unavailable
from tg_schema.topics import Topics


class Liveness:
    """Heartbeats in both directions.

    Args:
        bus: carries the echoes.
        topics: the names of our own topics.
        inbox: the requestor's inbox; the links of a dead process are removed from it.
        controls: sends to processes.
        timing: when a silent process counts as dead.
        clock: measures silence.
        time: the shared time, by the clocks of the processes.

    Attributes:
        presence: the processes that are known.
        time: as given.
        end: called with the reason if this process cannot go on.
        on_peer: gets another requestor's inbox and its message.
    """

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        inbox: Inbox,
        controls: ControlSender,
        *,
        timing: HeartbeatTiming,
        clock: AwakeClock,
        time: SharedTime,
    ) -> None:
        self.presence = Membership(timing, clock)
        self.time = time
        self._bus, self._inbox, self._controls = bus, inbox, controls
        self._timing, self._clock = timing, clock
        self._ask_at = -math.inf
        self._announce = Announce(inbox.topic, new_id(8))
        self.end: Callable[[BusError], None] = _ignore
        self.on_peer: Callable[[str, bytes], None] = _ignore
        self._echo = Echo(bus, topics.presence, clock, timing.interval)
        self._inbox_echo = Echo(bus, inbox.topic, clock, timing.interval)

    def close(self) -> None:
        """Send no more echoes."""
        self._echo.close()
        self._inbox_echo.close()

    def on_inbox(self, delivery: Delivery) -> None:
        """Take a message on the inbox that is not of a link.

        Raises:
            BadRequest: its kind is unknown, or it is malformed.
        """
        kind = delivery.properties.get(KIND_PROPERTY)
        if kind == "presence":
            self.on_presence(delivery)
        elif kind == "report":
            self._on_report(decode(LinkReport, delivery.body))
        elif not (self._take_peer(delivery) or self._inbox_echo.take(delivery)):
            raise BadRequest(f"not for an inbox: it needs the property `link`, or `{KIND_PROPERTY}` with a known kind")

    def on_presence(self, delivery: Delivery) -> None:
        """A process has announced itself, to everybody or to us alone.

        Raises:
            BadRequest: the message is not such a record.
        """
        if self._take_peer(delivery) or self._echo.take(delivery):
            return
        presence = decode(Presence, delivery.body)
        if presence.birth not in {"", self._announce.birth}:
            self.end(
                BusError(
                    f"another process had the inbox {self._inbox.topic} first, and both would cancel each other's "
                    "requests: start this one anew, and not from a copy of a running process"
                )
            )
        new = self.presence.update(presence)
        self.time.note(presence.processor, delivery.age)
        if self.presence.is_behind(presence):
            self._controls.ask_presence(self._announce, presence.processor)
        # A new process does not know us: with a heartbeat now, it knows our clock's offset before our first request.
        if new:
            self._inbox.send_heartbeat(presence.processor)

    def _take_peer(self, delivery: Delivery) -> bool:
        """Whether this is a message among requestors; our own to all comes back."""
        peer = delivery.properties.get(PEER_PROPERTY, "")
        if peer not in {"", self._inbox.topic}:
            self.on_peer(peer, delivery.body)
        return bool(peer)

    def _on_report(self, report: LinkReport) -> None:
        self.presence.note(report)
        self._inbox.on_report(report)

    def ask(self) -> None:
        """Ask all processes to announce themselves to us, at most once per heartbeat interval: all of them answer."""
        if (now := self._clock()) >= self._ask_at:
            self._ask_at = now + self._timing.interval
            self._controls.ask_presence(self._announce)

    async def until_served(self, route: Route[Any, Any]) -> bool:
        """Wait until a live processor serves a queue, but only in our first seconds; returns whether it had to wait.

        Raises:
            Unavailable: we have listened long enough, and no live processor serves it.
        """
        waited = False
        while not self.presence.serving(route.request):
            self.presence.seek(route.request)
            if self.presence.is_unserved(route.request):
                # Our question may have been lost: after asking again, the next request finds the processors that
                # answer, or another reason.
                if self._controls.refusal is not None:
                    self.ask()
                raise self.make_unserved_error(route)
            self.ask()
            await self.presence.wait(self._timing.interval)
            waited = True
        return waited

    def make_unserved_error(self, route: Route[Any, Any]) -> Unavailable:
        """The error for a queue without a live processor. If the bus refuses our questions, it gives that reason."""
        sentence = f"no live processor serves {route.spec.name} of flow {route.flow}"
        if (refusal := self._controls.refusal) is not None:
            return Unavailable(f"{sentence} as far as is known, and none can be asked: {refusal}", retry_after=1.0)
        return Unavailable(f"{sentence}; start one, or ask again later", retry_after=1.0)

    def send_heartbeats(self, streams: Iterable[AskedStream]) -> None:
        """Send a heartbeat to each process that has a link to us, is new, or answers one of our streams."""
        # Each heartbeat has the lowest number of a link by which its process answers.
        bound: dict[str, int] = {}
        for stream in streams:
            processor, link = stream.attempt.processor, stream.attempt.link
            if processor is not None and not stream.failed:
                bound[processor] = min(bound.get(processor, link), link)
        for processor in dict.fromkeys((*self._inbox.processors, *self.presence.new, *bound)):
            self._inbox.send_heartbeat(processor, bound.get(processor, -1))
        self._inbox.ask_again()

    def find_dead(self) -> tuple[dict[str, tuple[Presence, ...]], set[str]]:
        """The dead processes, and those whose messages are lost. Both are empty until our own echo has come back."""
        # In one process both ends share the event loop: a silent peer only means that the loop was busy.
        if self._bus.in_process:
            return {}, set()
        doubt, limit = self._timing.doubt_after, self._timing.dead_after
        dead: dict[str, tuple[Presence, ...]] = {}
        if self._echo.is_settled(doubtful=self.presence.silent(doubt)):
            dead = self.presence.expire()
            self._inbox.forget(set(dead))
        if self._inbox_echo.is_settled(doubtful=bool(self._inbox.find_lost(doubt))):
            return dead, self._inbox.find_lost(limit)
        return dead, set()

    def is_taken(self, queue: str, asked_at: float, dead: Mapping[str, tuple[Presence, ...]]) -> bool:
        """Whether a lost request was taken by a process that has been silent since; the arguments are `is_lost`'s.

        The request did not wait if a processor had a free slot, and a live process binds a request within a second.
        """
        silent = self.presence.overdue(queue, since=asked_at - self._timing.interval)
        if self._clock() - asked_at >= self._timing.dead_after - self._timing.interval:
            silent += [service for served in dead.values() for service in served if queue in service.queues]
        return bool(silent) and any(
            service.in_flight < service.capacity for service in (*silent, *self.presence.serving(queue))
        )

    def is_lost(self, queue: str, asked_at: float, dead: Mapping[str, tuple[Presence, ...]]) -> bool:
        """Whether a queued request was probably taken by a processor that died or is partitioned.

        Args:
            queue: the queue to which the request was published.
            asked_at: when.
            dead: the processes that were found dead now, and the services of each.
        """
        # A recent request is more likely on its way to or from a live processor; if not, `is_stalled` will find it.
        is_recent = self._clock() - asked_at < self._timing.interval
        services = [service for served in dead.values() for service in served]
        was_served = any(queue in service.queues and not service.leaving for service in services)
        return (was_served and not is_recent) or self.presence.is_stalled(queue, asked_at)


def _ignore(*_: object) -> None:
    """Does nothing: the default of the callbacks that end the process, or hear other requestors."""
