"""Inbox topic -> frames: reorders and acknowledges all links of one requestor, and requests what is missing."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from tg_base.bus import Delivery
from tg_base.client.asked_stream import AskedStream
from tg_base.client.control_sender import ControlSender
from tg_base.protocol import Ack, FairSpacing, Frame, Heartbeat, LinkReport, Nack, whole_number
from tg_base.telemetry import RESENDS
from tg_schema import decode
from tg_schema.errors import BadRequest

MESSAGES_PER_ACK = 64
"""Messages of a link between two acknowledgements, in addition to those in every heartbeat."""
NACK_INTERVAL_SECONDS = 0.1
"""Seconds between two nacks for the same gap."""
MAX_AHEAD_MESSAGES = 1024
"""How far ahead of the expected message one is buffered; a sender's window is smaller."""

_FRAMES: Final = list[Frame]

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
        """Note that the sender has announced to have sent everything up to this number."""
        self._known = max(self._known, sent)

    def take(self, seq: int, message: T) -> Iterable[T]:
        """Add a message; returns those that are due, in order. A repeated message is never due.

        A message counts as delivered when the caller iterates over it. The others stay due, and come with the next one.
        """
        if seq == self.expected and not self._early:
            self.expected += 1
            return (message,)
        self._known = max(self._known, seq)
        if self.expected <= seq <= self.expected + MAX_AHEAD_MESSAGES:
            self._early[seq] = message
        return self._due()

    def _due(self) -> Iterator[T]:
        while self.expected in self._early:
            # Before the yield: a message whose handling fails counts as delivered, or it would come for ever.
            self.expected += 1
            yield self._early.pop(self.expected - 1)


@dataclass(slots=True)
class _LinkReceiver:
    """The receiving end of a processor's newest link. `received`: whether a message came since `received_at`."""

    link: str
    order: int
    epoch: int
    reader: ReorderBuffer[list[Frame]] = field(default_factory=ReorderBuffer)
    received: bool = True
    received_at: float = float("-inf")
    asked_at: float = float("-inf")
    gap_since: float | None = None
    gap_at: int = 0
    frames: int = 0
    acked: int = 0

    @property
    def ack(self) -> Ack:
        return Ack(self.epoch, self.reader.expected - 1)


class Inbox:
    """The receiving ends of all links.

    Args:
        topic: the inbox's topic, by which processors identify this requestor.
        controls: sends acknowledgements and nacks.
        time: a monotonic clock, in seconds.
        on_frame: takes each frame that is due, except later records of bound streams, with its processor and the number
            of its link.
        on_link: gets the process of each new link, before any message of the link is passed on.
        on_other: takes messages that are not of a link.
        streams: by id. A stream that is bound to this processor, link and attempt gets its later records directly.
    """

    def __init__(
        self,
        topic: str,
        controls: ControlSender,
        time: Callable[[], float],
        on_frame: Callable[[str, int, Frame], None],
        *,
        on_link: Callable[[str], object] = lambda _: None,
        on_other: Callable[[Delivery], None] | None = None,
        streams: Mapping[str, AskedStream] = MappingProxyType({}),
    ) -> None:
        self.topic = topic
        self._controls = controls
        self._time = time
        self._on_frame = on_frame
        self._on_link = on_link
        self._on_other = on_other
        self._streams = streams
        self._ends: dict[str, _LinkReceiver] = {}
        self._epochs = count(1)
        self._spacing = FairSpacing()

    @property
    def processors(self) -> tuple[str, ...]:
        """The processors that have a link to this inbox."""
        return tuple(self._ends)

    def take(self, delivery: Delivery) -> None:
        """Pass on the frames that are due after this message, in order.

        Raises:
            BadRequest: the message lacks a property of a link's message and there is no `on_other`, or is malformed.
        """
        properties = delivery.properties
        if "link" not in properties and self._on_other is not None:
            self._on_other(delivery)
            return
        try:
            processor, link, seq = properties["processor"], properties["link"], properties["seq"]
        except KeyError:
            raise BadRequest("not a link message: it needs the properties `processor`, `link` and `seq`") from None
        end = self._ends.get(processor)
        # Nearly all messages are the next of a known link.
        if end is not None and end.link == link and seq == str(end.reader.expected):
            number = end.reader.expected
            end.received = True
        else:
            number = whole_number("seq", seq)
            end = self._end(link, processor)
            if end is None:
                return
        # Decoded before the buffer counts it: a body that is not a list of frames must not take this number's place.
        for frames in end.reader.take(number, decode(_FRAMES, delivery.body)):
            end.frames += len(frames)
            for frame in frames:
                self._pass_on(processor, end.order, frame)
        # Between two heartbeats a fast link would fill its sender's window, which only acknowledgements open.
        if end.reader.expected - end.acked >= MESSAGES_PER_ACK:
            self.send_heartbeat(processor)
        if end.gap_since is not None or end.reader.gap:
            self._mind_gap(processor, end)

    def _pass_on(self, processor: str, link: int, frame: Frame) -> None:
        stream, kind = self._streams.get(frame.stream), frame.kind
        if (
            stream is None
            or not (attempt := stream.attempt).pieces
            or attempt.processor != processor
            or attempt.link != link
            or attempt.key.attempt != frame.attempt
            or kind not in {"record", "end"}
        ):
            self._on_frame(processor, link, frame)
        # `put` refuses if the stream has failed, for instance because of a slow reader: nobody waits for the rest.
        elif not stream.put(bytes(frame.record), last=kind == "end") and kind != "end":
            self._controls.cancel(processor, attempt.key)

    def on_report(self, report: LinkReport) -> None:
        """A process has reported how far it has sent here."""
        processor, state = report.processor, report.link
        if state is not None and state.sent >= 0:
            end = self._end(state.link, processor)
            if end is not None:
                end.reader.on_announced(state.sent)
                self._mind_gap(processor, end)

    def send_heartbeat(self, processor: str, oldest: int = -1) -> None:
        """Send a processor a heartbeat, with the acknowledgement of its link.

        Args:
            processor: to whom.
            oldest: the lowest link number by which that processor answers a stream; -1 = not stated.
        """
        end = self._ends.get(processor)
        acks = {}
        if end is not None:
            acks[end.link] = end.ack
            end.acked = end.reader.expected
        frames = ((end.link, end.frames) for end in self._ends.values())
        spacing = self._spacing.update(frames, self._time())
        cancelled = self._controls.recently_cancelled(processor)
        heartbeat = Heartbeat(self.topic, acks, cancelled, reports=True, oldest=oldest, spacing=spacing)
        self._controls.send(processor, heartbeat)

    def ask_again(self) -> None:
        """Send a nack again for each known gap: the resent messages, and the next report, may be lost too."""
        for processor, end in self._ends.items():
            self._mind_gap(processor, end)

    def sweep(self, seconds: float) -> None:
        """Drop the links that have been silent for this long, since their processor has closed them."""
        now = self._time()
        for processor, end in list(self._ends.items()):
            # All messages since the last check count as received now: a link is dropped up to an interval late, never
            # early.
            if end.received:
                end.received, end.received_at = False, now
            elif end.received_at < now - seconds:
                del self._ends[processor]

    def find_lost(self, seconds: float) -> set[str]:
        """The processors whose link has waited for the same message for this long."""
        limit, ends = self._time() - seconds, self._ends.items()
        return {processor for processor, end in ends if end.gap_since is not None and end.gap_since < limit}

    def forget(self, processors: set[str]) -> None:
        """Drop the links of dead processors."""
        self._ends = {processor: end for processor, end in self._ends.items() if processor not in processors}

    def _end(self, link: str, processor: str) -> _LinkReceiver | None:
        """The receiving end; None for a link that was replaced, whose messages come again on the newer one."""
        end = self._ends.get(processor)
        if end is None or end.link != link:
            # A link's name ends in /NUMBER; a later link of the same processor has a larger one.
            order = whole_number("link", link.rpartition("/")[2])
            if end is not None and order < end.order:
                return None
            # Also used if a dropped link is heard again: the new epoch makes its sender repeat everything
            # unacknowledged.
            end = self._ends[processor] = _LinkReceiver(link, order, next(self._epochs))
            self._on_link(processor)
        end.received = True
        return end

    def _mind_gap(self, processor: str, end: _LinkReceiver) -> None:
        if not end.reader.gap:
            end.gap_since = None
            return
        now = self._time()
        # Some resent messages are lost again; while others close gaps, the link is alive.
        if end.gap_since is None or end.gap_at != end.reader.expected:
            end.gap_since, end.gap_at = now, end.reader.expected
        if now - end.asked_at >= NACK_INTERVAL_SECONDS:
            end.asked_at = now
            RESENDS.inc()
            self._controls.send(processor, Nack(self.topic, end.link, end.ack))
