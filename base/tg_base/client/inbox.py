"""Inbox topic -> frames: reorders and acknowledges all links of one requestor, and requests what is missing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from tg_base.bus import Delivery
from tg_base.client.control_sender import ControlSender
from tg_base.protocol import Ack, FairSpacing, Frame, Heartbeat, LinkState, Nack, whole_number
from tg_base.telemetry import RESENDS
from tg_schema import decode
from tg_schema.errors import BadRequest

MESSAGES_PER_ACK = 64
"""Messages of a link between two acknowledgements, in addition to those in every heartbeat."""
NACK_INTERVAL_SECONDS = 0.1
"""Seconds between two nacks for the same gap."""
MAX_AHEAD_MESSAGES = 1024
"""How far ahead of the expected message one is buffered; a sender's window is smaller."""

T = TypeVar("T")


class ReorderBuffer(Generic[T]):
    """The receiving end of a link, for messages of any kind. It has no clock and no bus.

    Attributes:
        expected: the number of the next message; everything below was delivered.
    """

    def __init__(self) -> None:
        self.expected = 0
        self._early: dict[int, T] = {}
        self._known = -1

    @property
    def gap(self) -> bool:
        """Whether a message is missing that is known to have been sent."""
        return self._known >= self.expected

    def on_announced(self, sent: int) -> None:
        """The sender has announced that it sent everything up to this number."""
        self._known = max(self._known, sent)

    def take(self, seq: int, message: T) -> Iterator[T]:
        """Add a message; yield those that are due, in order. A repeated message yields nothing."""
        self._known = max(self._known, seq)
        if self.expected <= seq <= self.expected + MAX_AHEAD_MESSAGES:
            self._early[seq] = message
        while self.expected in self._early:
            # Before the yield: a message whose handling fails counts as delivered, or it would come for ever.
            self.expected += 1
            yield self._early.pop(self.expected - 1)


@dataclass(slots=True)
class _LinkReceiver:
    """The receiving end of a processor's newest link."""

    link: str
    order: int
    epoch: int
    reader: ReorderBuffer[list[Frame]] = field(default_factory=ReorderBuffer)
    heard_at: float = 0.0
    asked_at: float = float("-inf")
    gap_since: float | None = None
    frames: int = 0

    @property
    def ack(self) -> Ack:
        return Ack(self.epoch, self.reader.expected - 1)


class Inbox:
    """The receiving ends of all links.

    Args:
        topic: the inbox's topic, by which processors identify this requestor.
        controls: sends acknowledgements and nacks.
        time: a monotonic clock, in seconds.
    """

    def __init__(self, topic: str, controls: ControlSender, time: Callable[[], float]) -> None:
        self.topic = topic
        self._controls = controls
        self._time = time
        self._ends: dict[str, _LinkReceiver] = {}
        self._epochs = count(1)
        self._spacing = FairSpacing()

    @property
    def processors(self) -> tuple[str, ...]:
        """The processors that have a link to this inbox."""
        return tuple(self._ends)

    def take(self, delivery: Delivery) -> Iterator[tuple[str, int, Frame]]:
        """The frames that are due after this message, in order, each with its processor and its link's number.

        Raises:
            BadRequest: not a link message.
        """
        properties = delivery.properties
        try:
            processor, link, seq = properties["processor"], properties["link"], properties["seq"]
        except KeyError:
            raise BadRequest("not a link message: it needs the properties `processor`, `link` and `seq`") from None
        number = whole_number("seq", seq)
        end = self._end(link, processor)
        if end is None:
            return
        # Decoded before the buffer counts it: a body that is no list of frames must not take this number's place.
        for frames in end.reader.take(number, decode(list[Frame], delivery.body)):
            end.frames += len(frames)
            for frame in frames:
                yield processor, end.order, frame
            # Between two heartbeats a fast link would fill its sender's window, which only acknowledgements open.
            if end.reader.expected % MESSAGES_PER_ACK == 0:
                self.send_heartbeat(processor)
        self._mind_gap(processor, end)

    def on_announced(self, processor: str, state: LinkState | None) -> None:
        """A processor has announced how far it has sent here; None = it has no link to this inbox."""
        if state is not None and state.sent >= 0:
            end = self._end(state.link, processor)
            if end is not None:
                end.reader.on_announced(state.sent)
                self._mind_gap(processor, end)

    def send_heartbeat(self, processor: str, oldest: int = -1) -> None:
        """Send a processor a heartbeat, with the acknowledgement of its link.

        Args:
            processor: to whom.
            oldest: the lowest link number by which it answers a stream; -1 = not stated.
        """
        end = self._ends.get(processor)
        acks = {} if end is None else {end.link: end.ack}
        frames = ((end.link, end.frames) for end in self._ends.values())
        spacing = self._spacing.update(frames, self._time())
        cancelled = self._controls.recently_cancelled(processor)
        heartbeat = Heartbeat(self.topic, acks, cancelled, reports=True, oldest=oldest, spacing=spacing)
        self._controls.say(processor, heartbeat)

    def ask_again(self) -> None:
        """Send a nack for each gap that is known: what would close it may be lost again, and the next report too."""
        for processor, end in self._ends.items():
            self._mind_gap(processor, end)

    def sweep(self, seconds: float) -> None:
        """Drop the links that have been silent for this long, since their processor has closed them."""
        limit = self._time() - seconds
        for processor in [processor for processor, end in self._ends.items() if end.heard_at < limit]:
            del self._ends[processor]

    def lost(self, seconds: float) -> set[str]:
        """The processors whose link has had a gap for this long."""
        limit, ends = self._time() - seconds, self._ends.items()
        return {processor for processor, end in ends if end.gap_since is not None and end.gap_since < limit}

    def forget(self, processors: set[str]) -> None:
        """Drop the links of dead processors."""
        self._ends = {processor: end for processor, end in self._ends.items() if processor not in processors}

    def _end(self, link: str, processor: str) -> _LinkReceiver | None:
        """The receiving end; None for a link that was replaced, whose messages come again on the newer one."""
        end = self._ends.get(processor)
        if end is None or end.link != link:
            order = _order(link)
            if end is not None and order < end.order:
                return None
            # Also for a link that was dropped and is heard again: its sender learns from the new epoch that everything
            # unacknowledged must come again.
            end = self._ends[processor] = _LinkReceiver(link, order, next(self._epochs))
        end.heard_at = self._time()
        return end

    def _mind_gap(self, processor: str, end: _LinkReceiver) -> None:
        if not end.reader.gap:
            end.gap_since = None
            return
        now = self._time()
        if end.gap_since is None:
            end.gap_since = now
        if now - end.asked_at >= NACK_INTERVAL_SECONDS:
            end.asked_at = now
            RESENDS.inc()
            self._controls.say(processor, Nack(self.topic, end.link, end.ack))


def _order(link: str) -> int:
    """A link's name ends in /NUMBER; a later link of the same processor has a larger one."""
    return whole_number("link", link.rpartition("/")[2])
