"""Processor -> one requestor's inbox: numbered messages, each kept until the requestor acknowledges it.

A link carries the frames of all streams between the two. While two messages are in flight, new frames join the next
one. Without load every chunk is a message of its own; under load messages grow instead of queues.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
import structlog
from typing_extensions import override

from tg_base.bus import Bus
from tg_base.protocol.message_spacing import MessageSpacing
from tg_base.protocol.messages import (
    ACCEPTED_AFTER_SECONDS,
    OPENING_MODEL,
    Ack,
    Frame,
    FrameKind,
    LinkState,
    StreamKey,
)
from tg_base.telemetry import new_number
from tg_schema import Error, TgError, decode, encode
from tg_schema.errors import TooLarge
from tg_schema.response import Response

log = structlog.get_logger()

MAX_UNACKED_MESSAGES = 256
"""Unacknowledged messages; well below the inbox's receiver queue, so that the broker drops none."""
MAX_UNACKED_BYTES = 16 * 1024 * 1024
"""Unacknowledged bytes; a single message may exceed it."""
MAX_JOINED_BYTES = 256 * 1024
"""Bytes of records that join one message, unless a single record is larger."""
FRAMING_BYTES = 16 * 1024
"""Bytes of a message reserved for the framing of its records."""
MAX_WAITING_RECORDS = 256
"""Records of one stream buffered for the link; beyond it `send` waits, which slows the provider down."""
MAX_IN_FLIGHT_MESSAGES = 2
"""Messages in flight: a chunk need not wait for the broker's answer to the previous one."""
MAX_CONCURRENT_RESENDS = 16
"""Messages resent concurrently; few enough that a broker drops none of them for a slow reader."""
RETRY_SECONDS = 0.25
"""Seconds between attempts to publish while the bus is down."""

_TOO_LARGE = Error(type=TooLarge.type, message="the answer holds a record that is too large to travel")

_KindFrame = tuple[Frame, type[Response] | None]
"""A frame, and the type of its record, by which its stream can end with an error; None = the frame is a signal."""


class _Message(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A message with its link name and number, which are fixed together: a late retry must not mix old and new ones.

    `kinds` has the type of each frame's record; None = the frame is a signal.
    """

    link: str
    seq: int
    body: bytes
    kinds: tuple[type[Response] | None, ...]


class LinkSender:
    """The sending end. `run` must be running as a task for as long as the link is used.

    Args:
        bus: carries the messages.
        inbox: the requestor's topic.
        processor: the sender's id.
        time: the clock that silence is measured by, in seconds.

    Attributes:
        name: its current name. A new epoch changes the name and restarts the numbers.
        spacing: the least seconds between two messages under load; not used on a bus within one process.
        used: whether it has made a message since a reader of this attribute last set it to False.
    """

    def __init__(self, bus: Bus, inbox: str, processor: str, time: Callable[[], float]) -> None:
        self.inbox = inbox
        self.spacing = MessageSpacing()
        self.streams: set[StreamKey] = set()
        self._bus = bus
        self._processor = processor
        self._first = new_number()
        self.name = f"{processor}/{self._first}"
        self._sent = self._acknowledged = -1
        self._epoch = self._unacked_bytes = 0
        self._resend_from: int | None = None
        self._unacked: dict[int, _Message] = {}
        self._waiting: deque[LinkStream] = deque()
        self._frames: deque[_KindFrame] = deque()
        self._ready = asyncio.Event()
        self._taken = asyncio.Event()
        # With one message in flight, every chunk would wait for the broker's answer to the one before it. With many,
        # load would show as a queue of small messages; two make waiting chunks join into one message.
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT_MESSAGES)
        self.used = False
        self.received_at = self.used_at = time()

    @property
    def state(self) -> LinkState:
        """How far this link has sent, and for how many streams."""
        return LinkState(self.name, self._sent, len(self.streams), self._first)

    @property
    def idle(self) -> bool:
        """Whether no stream uses it, nothing is buffered and everything sent is acknowledged."""
        return not (self.streams or self._due or self._unacked)

    @property
    def _full(self) -> bool:
        return len(self._unacked) >= MAX_UNACKED_MESSAGES or self._unacked_bytes >= MAX_UNACKED_BYTES

    @property
    def _due(self) -> bool:
        return bool(self._waiting or self._frames)

    def enqueue(self, stream: "LinkStream") -> None:
        """Queue a stream that now has something for the next message, and had nothing before."""
        # If others wait already, `run` will see it with them, or is paused until another event sets this.
        if not self._waiting:
            self._ready.set()
        self._waiting.append(stream)

    def withdraw(self, stream: "LinkStream") -> None:
        """Make no more messages of what this stream has buffered."""
        if stream in self._waiting:
            self._waiting.remove(stream)
        self._taken.set()
        self._taken.clear()

    async def until_taken(self) -> None:
        """Return when the next message has been made from the waiting records."""
        await self._taken.wait()

    def acknowledge(self, ack: Ack) -> None:
        """The requestor has every message up to this one; they are no longer kept."""
        if not self._heeds(ack) or ack.seq <= self._acknowledged:
            return
        self._acknowledged = ack.seq
        for seq in [seq for seq in self._unacked if seq <= ack.seq]:
            self._unacked_bytes -= len(self._unacked.pop(seq).body)
        self._ready.set()

    def resend(self, ack: Ack) -> None:
        """The requestor misses the messages after this one; they are sent again."""
        first = ack.seq + 1
        if self._heeds(ack) and first > self._acknowledged:
            self._resend_from = first if self._resend_from is None else min(first, self._resend_from)
            self._ready.set()

    def _heeds(self, ack: Ack) -> bool:
        """Whether this comes from the receiver's current epoch. A newer epoch renews the link first."""
        # The first acknowledgement shows the receiver's epoch; until then there is nothing to compare with.
        self._epoch = self._epoch or ack.epoch
        if ack.epoch > self._epoch:
            self._renew()
        return ack.epoch == self._epoch

    def _renew(self) -> None:
        """Start a new epoch, with the messages that are not acknowledged yet: the requestor believed us dead."""
        # A new name, not only new numbers: an old message that is still in flight would otherwise pass for a new one
        # of the same number.
        self.name = f"{self._processor}/{new_number()}"
        self._epoch = 0
        unacked = enumerate(self._unacked.values())
        self._unacked = {seq: _Message(self.name, seq, message.body, message.kinds) for seq, message in unacked}
        self._sent, self._acknowledged, self._resend_from = len(self._unacked) - 1, -1, 0
        self._ready.set()

    async def flush(self) -> None:
        """Return once nothing is buffered, and the bus has taken every message."""
        while self._due:
            await self.until_taken()
        # Once it holds every permit, no message is in flight.
        for _ in range(MAX_IN_FLIGHT_MESSAGES):
            await self._room.acquire()
        for _ in range(MAX_IN_FLIGHT_MESSAGES):
            self._room.release()

    async def run(self) -> None:
        """Send, in order and at most `MAX_IN_FLIGHT_MESSAGES` messages at a time, until cancelled."""
        clock = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as sends:
            while True:
                await self._ready.wait()
                self._ready.clear()
                if self._resend_from is not None:
                    first, self._resend_from = self._resend_from, None
                    again = [message for seq, message in self._unacked.items() if seq >= first]
                    # Concurrently: far from the broker, one after the other would take a round trip each.
                    for start in range(0, len(again), MAX_CONCURRENT_RESENDS):
                        await asyncio.gather(*map(self._publish, again[start : start + MAX_CONCURRENT_RESENDS]))
                while (self._waiting or self._frames) and not self._full and self._resend_from is None:
                    if self._bus.in_process:
                        # Such a bus takes a message at once: a task would cost more than the message itself.
                        await self._publish(self._next())
                        if self._waiting or self._frames:
                            await asyncio.sleep(0)
                        continue
                    await self._room.acquire()
                    if (wait := self.spacing.wait(clock())) > 0:
                        await asyncio.sleep(wait)
                    # The message is made only now, so that it includes the frames that arrived while we waited.
                    self.spacing.note_sent(len(self._waiting), len(self._unacked), clock())
                    sends.create_task(self._publish(self._next())).add_done_callback(lambda _: self._room.release())

    def _next(self) -> _Message:
        """The next message, kept from now on until it is acknowledged."""
        body, kinds = self._take()
        self._sent += 1
        self._unacked_bytes += len(body)
        message = self._unacked[self._sent] = _Message(self.name, self._sent, body, kinds)
        return message

    def _take(self) -> tuple[bytes, tuple[type[Response] | None, ...]]:
        """The buffered frames, joined, up to `MAX_JOINED_BYTES` bytes or half of the bus's limit; their kinds."""
        frames: list[Frame] = []
        kinds: list[type[Response] | None] = []
        most = self._bus.max_message
        size, limit, largest = 0, min(MAX_JOINED_BYTES, most // 2), most - FRAMING_BYTES
        due, waiting = self._frames, self._waiting
        while size < limit and (due or waiting):
            # One stream after the other, in the order in which they began to wait: none can starve another.
            if not due:
                due.extend(waiting.popleft().take(largest))
            frame, kind = due.popleft()
            size += len(frame.record)
            if size > largest and frames:
                due.appendleft((frame, kind))
                break
            frames.append(frame)
            kinds.append(kind)
        self.used = True
        self._taken.set()
        self._taken.clear()
        return encode(frames), tuple(kinds)

    async def _publish(self, message: _Message) -> None:
        """Publish until the bus has it, it is acknowledged or renamed, or the link is closed."""
        properties = {"link": message.link, "processor": self._processor, "seq": str(message.seq)}
        while self._unacked.get(message.seq) is message:
            try:
                return await self._bus.publish(self.inbox, message.body, properties)
            except TooLarge:
                message = self._shrink(message)
                # `_join` has checked each record, but against the limit known then: the broker's may be lower.
                await asyncio.sleep(0)
            except TgError as error:
                log.warning("link.publish_failed", link=message.link, seq=message.seq, reason=error.message)
                await asyncio.sleep(RETRY_SECONDS)
        return None

    def _shrink(self, message: _Message) -> _Message:
        """The same message without its largest record. That stream ends with an error, the others continue."""
        frames = decode(list[Frame], message.body)
        kinds = [(index, kind) for index, kind in enumerate(message.kinds) if kind is not None]
        index, kind = max(kinds, key=lambda one: len(frames[one[0]].record))
        key = StreamKey(frames[index].stream, frames[index].attempt)
        frames[index], _ = _failure(key, kind)
        log.warning("link.too_large", link=message.link, seq=message.seq, stream=key.stream)
        smaller = self._unacked[message.seq] = _Message(message.link, message.seq, encode(frames), message.kinds)
        self._unacked_bytes += len(smaller.body) - len(message.body)
        self._ready.set()
        return smaller


class LinkStream:
    """One stream on a link: sends the answer to one request of our own requestors.

    The first record shows that work has begun; while there is none, "accepted" frames do.

    Args:
        link: carries it.
        key: the stream, and which attempt at it this answers.
        repeat_after: seconds without a record after which another "accepted" frame is sent.
    """

    __slots__ = ("_key", "_link", "_opening", "_records", "_repeat_after", "_repeat_at", "_signals", "_timer", "_waits")

    def __init__(self, link: LinkSender, key: StreamKey, repeat_after: float) -> None:
        self._link, self._key, self._repeat_after = link, key, repeat_after
        self._timer: asyncio.TimerHandle | None = None
        # `bool()` is False: before `accept`, no model is opened for the request.
        self._opening: Callable[[], bool] = bool
        self._repeat_at = 0.0
        self._waits = False
        self._records: list[Response] = []
        # Each signal with the number of records before it; None = there are no signals, as nearly always.
        self._signals: list[tuple[int, Frame]] | None = None

    def open(self) -> None:
        """Register the stream: from now on it ends if its requestor dies."""
        self._link.streams.add(self._key)

    def accept(self, opening: Callable[[], bool]) -> None:
        """Tell the requestor that the work continues, as long as there is no record.

        Args:
            opening: returns whether the request waits for its model to be opened; called until it returns False.
        """
        self._opening = opening
        self._timer = asyncio.get_running_loop().call_later(ACCEPTED_AFTER_SECONDS, self._repeat_accepted)

    def signal(self, kind: FrameKind, question: int = 0) -> None:
        """Send the requestor a notice or a question besides the records; `Frame` explains the kinds and numbers."""
        signal = len(self._records), Frame(kind, self._key.stream, self._key.attempt, question=question)
        signals = self._signals = self._signals or []
        if not signals or signals[-1] != signal:
            signals.append(signal)
        if not self._waits:
            self._waits = True
            self._link.enqueue(self)

    async def send(self, record: Response) -> None:
        """Buffer a record; waits while `MAX_WAITING_RECORDS` are buffered, unless it is the last one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._opening = bool
        # The last record never waits: a stream that is being stopped has to end even while its requestor is stuck.
        while len(self._records) >= MAX_WAITING_RECORDS and not record.last:
            await self._link.until_taken()
        self.put(record)

    def put(self, record: Response) -> bool:
        """Buffer a record that is not the first; returns whether `send` would take another one without waiting."""
        self._records.append(record)
        if not self._waits:
            self._waits = True
            self._link.enqueue(self)
        return len(self._records) < MAX_WAITING_RECORDS

    def close(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._link.streams.discard(self._key)

    def take(self, largest: int) -> list[_KindFrame]:
        """Returns all that is buffered, in the order of the calls: a question must not overtake the record before it.

        Args:
            largest: bytes of the largest record that the bus carries.
        """
        records, self._records = self._records, []
        signals, self._signals = self._signals, None
        self._waits = False
        if not signals:
            return self._frame(records, largest)
        frames, done = list[_KindFrame](), 0
        for position, signal in signals:
            frames += self._frame(records[done:position], largest)
            frames.append((signal, None))
            done = position
        return frames + self._frame(records[done:], largest)

    def _frame(self, records: Sequence[Response], largest: int) -> list[_KindFrame]:
        return _join(self._key, records, largest)

    def _repeat_accepted(self) -> None:
        loop, opening = asyncio.get_running_loop(), self._opening()
        if not opening or loop.time() >= self._repeat_at:
            self.signal("accepted", OPENING_MODEL if opening else 0)
            self._repeat_at = loop.time() + self._repeat_after
        # The timer runs more often than it sends, so that the end of the opening is reported at once.
        self._timer = loop.call_later(ACCEPTED_AFTER_SECONDS if opening else self._repeat_after, self._repeat_accepted)


class KeptStream(LinkStream):
    """One stream that another requestor may adopt: it holds all its records, and each is a frame of its own."""

    __slots__ = ("_all", "first")

    def __init__(self, link: LinkSender, key: StreamKey, repeat_after: float) -> None:
        super().__init__(link, key, repeat_after)
        self.first = key
        self._all: list[Response] = []

    @property
    def key(self) -> StreamKey:
        """The attempt under which it is answered; `first` is the one under which it was begun."""
        return self._key

    def move(self, link: LinkSender, key: StreamKey, after: int) -> None:
        """Go on over another link, under this key, after the first `after` records."""
        self._link.withdraw(self)
        if self._key in self._link.streams:
            self._link.streams.discard(self._key)
            link.streams.add(key)
        self._link, self._key, self._signals = link, key, None
        self._records = self._all[after:]
        self._waits = bool(self._records)
        if self._waits:
            link.enqueue(self)
        else:
            self.signal("accepted")

    @override
    def put(self, record: Response) -> bool:
        self._all.append(record)
        return super().put(record)

    @override
    def _frame(self, records: Sequence[Response], largest: int) -> list[_KindFrame]:
        return [frame for record in records for frame in _join(self._key, (record,), largest)]


def _join(key: StreamKey, records: Sequence[Response], largest: int) -> list[_KindFrame]:
    """Make as few frames as possible, each within the bus's limit; a single record over it ends its stream."""
    if not records:
        return []
    kind, frames = type(records[0]), list[_KindFrame]()
    for record in records if len(records) == 1 else kind.join(records):
        if len(body := encode(record)) > largest:
            break
        frame = Frame("end" if record.last else "record", key.stream, key.attempt, msgspec.Raw(body))
        frames.append((frame, kind))
    else:
        return frames
    if len(records) > 1:
        half = len(records) // 2
        return _join(key, records[:half], largest) + _join(key, records[half:], largest)
    return [_failure(key, kind)]


def _failure(key: StreamKey, kind: type[Response]) -> _KindFrame:
    return Frame("end", key.stream, key.attempt, msgspec.Raw(encode(kind.from_error(_TOO_LARGE)))), kind
