"""Requestor -> processors and requestors: control messages, sent in the background: leaving a stream never waits."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from tg_base.bus import Bus
from tg_base.protocol import ECHO_PROPERTY, PEER_PROPERTY, Announce, Cancel, Control, Outbox, StreamKey
from tg_schema.topics import Topics

CANCEL_REPEAT_SECONDS = 5.0
"""Seconds for which every heartbeat repeats a cancel, in case it was lost."""
MAX_TOLD_PROCESSORS = 16
"""How many processors of a queue get a cancel. If more serve it, the processor that takes the request learns of the
cancel when it asks for confirmation, or after its first frame: a message to each processor would cost more."""
MAX_WITHDRAWN = 256
"""Cancelled attempts that may still be queued, and are remembered; few enough for one message."""


@dataclass(frozen=True, slots=True)
class _Withdrawn:
    """An attempt cancelled before a processor had it: how long it may still be queued, and who was notified."""

    until: float
    told: set[str]


class ControlSender:
    """The outgoing control messages of one requestor."""

    def __init__(self, bus: Bus, topics: Topics, time: Callable[[], float]) -> None:
        self._topics = topics
        self._time = time
        self._outbox = Outbox(bus, watched=topics.announce)
        self._cancelled: dict[tuple[str, StreamKey], float] = {}
        self._withdrawn: dict[StreamKey, _Withdrawn] = {}

    @property
    def refusal(self) -> str | None:
        """Why the bus did not take the last question to all processes; None = it did, or there was none."""
        return self._outbox.refusal

    def send(self, processor: str, control: Control) -> None:
        """Send to one processor."""
        self._outbox.put(self._topics.control(processor), control)

    def cancel(self, processor: str, key: StreamKey) -> None:
        """Stop an attempt that runs on this processor; repeated for `CANCEL_REPEAT_SECONDS`."""
        # Keep the first time: a processor that continues to send must not prolong the repetition for ever.
        if (processor, key) not in self._cancelled:
            self._cancelled[processor, key] = self._time() + CANCEL_REPEAT_SECONDS
        self.send(processor, Cancel((key,), CANCEL_REPEAT_SECONDS))
        if key in self._withdrawn:
            self._tell_withdrawn(processor)

    def cancel_queued(self, processors: Collection[str], key: StreamKey, ttl: float) -> None:
        """Stop an attempt that is queued or on any of its queue's processors; they remember it for `ttl` seconds."""
        told = set[str]()
        if not processors:
            # Processors may read this queue although we have not heard them. Without the cancel, they would ask for a
            # confirmation of each such request.
            self._outbox.put(self._topics.announce, Cancel((key,), ttl))
        elif len(processors) <= MAX_TOLD_PROCESSORS:
            told.update(processors)
            for processor in processors:
                self.send(processor, Cancel((key,), ttl))
        self._withdrawn[key] = _Withdrawn(self._time() + ttl, told)
        if len(self._withdrawn) > MAX_WITHDRAWN:
            del self._withdrawn[next(iter(self._withdrawn))]

    def _tell_withdrawn(self, processor: str) -> None:
        """Tell a processor at once of all cancels that it has not heard of.

        A processor that began to serve after those cancels would otherwise ask about each request in turn, at a round
        trip each. Far from the broker, the queue of an outage would delay live requests by seconds.
        """
        untold = {key: one for key, one in self._withdrawn.items() if processor not in one.told}
        if untold:
            ttl = max(one.until for one in untold.values()) - self._time()
            self.send(processor, Cancel(tuple(untold), max(ttl, 0.0)))
        for one in untold.values():
            one.told.add(processor)

    def recently_cancelled(self, processor: str) -> tuple[StreamKey, ...]:
        """The cancels that a heartbeat to this processor repeats."""
        return tuple(key for to, key in self._cancelled if to == processor)

    def sweep(self) -> None:
        """Forget the cancels that were repeated for `CANCEL_REPEAT_SECONDS`, and those whose requests have expired."""
        now = self._time()
        for stale in [entry for entry, until in self._cancelled.items() if until < now]:
            del self._cancelled[stale]
        for over in [key for key, one in self._withdrawn.items() if one.until < now]:
            del self._withdrawn[over]

    def ask_presence(self, announce: Announce, processor: str | None = None) -> None:
        """Ask a process, or all, to announce to an inbox now what they serve."""
        topic = self._topics.announce if processor is None else self._topics.control(processor)
        self._outbox.put(topic, announce)

    def tell_peers(self, message: object, inbox: str, peer: str | None) -> None:
        """Send a record to all requestors, or to the inbox of one; they see it as from our inbox."""
        # The mark of an echo makes older requestors ignore the message, like the echo of another process.
        marks = {PEER_PROPERTY: inbox, ECHO_PROPERTY: PEER_PROPERTY}
        self._outbox.put(peer or self._topics.presence, message, marks)

    async def flush(self, seconds: float) -> None:
        """Wait until everything is sent, at most this long."""
        await self._outbox.flush(seconds)

    def close(self) -> None:
        """Send nothing more."""
        self._outbox.close()
