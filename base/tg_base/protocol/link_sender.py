"""Processor -> one requestor's inbox: numbered messages that are kept until the requestor has them.

A link carries the frames of all streams between the two. While two messages are on their way, whatever comes
joins the next one: with no load every chunk is a message of its own, under load messages grow instead of queues.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from tg_base.bus import Bus
from tg_base.protocol.messages import Ack, Frame, LinkState, StreamKey
from tg_base.runtime import new_number
from tg_schema import Error, TgError, decode, encode
from tg_schema.errors import TooLarge
from tg_schema.response import Response

log = structlog.get_logger()

MAX_UNACKED_MESSAGES = 256
"""Messages that may be unacknowledged; well below the inbox's receiver queue, so that the broker drops none."""
MAX_UNACKED_BYTES = 16 * 1024 * 1024
"""Bytes that may be unacknowledged; one message always fits."""
MAX_JOINED_BYTES = 256 * 1024
"""Bytes of records that join one message, unless a single record is larger."""
FRAMING_BYTES = 16 * 1024
"""Bytes of a message that are left for what is around its records."""
MAX_WAITING_RECORDS = 256
"""Records of one stream that may wait for the link; beyond it the provider is slowed down."""
MAX_IN_FLIGHT_MESSAGES = 2
"""Messages on their way at once: a chunk need not wait for the broker's answer to the one before it."""
MAX_CONCURRENT_RESENDS = 16
"""Messages that are sent again at once; few enough that a broker drops none of them for a slow reader."""
RETRY_SECONDS = 0.25
"""Seconds between tries to publish while the bus is away."""


_TOO_LARGE = Error(type=TooLarge.type, message="the answer holds a record that is too large to travel")

Failed = Callable[[Error], Response]
"""Makes the last record of a stream that failed."""


@dataclass(slots=True)
class _Waiting:
    """What a stream has to send: records, and the other frames with the number of records before them."""

    records: list[Response] = field(default_factory=list)
    signals: list[tuple[int, Frame]] = field(default_factory=list)


class _Message(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What is sent under one number of one name of the link. Name and number never part, however late it leaves."""

    link: str
    seq: int
    body: bytes


class LinkSender:
    """The sending end. `run` must be running as a task for as long as the link is used.

    Args:
        bus: what carries the messages.
        inbox: the requestor's topic.
        processor: who sends.
        failed: makes the last record of a stream whose answer cannot travel.
        time: the clock that silence is measured by, in seconds.
    """

    def __init__(self, bus: Bus, inbox: str, processor: str, failed: Failed, time: Callable[[], float]) -> None:
        self.inbox = inbox
        self.streams: set[StreamKey] = set()
        self._bus = bus
        self._processor = processor
        self._failed = failed
        self._first = self._number = new_number()
        self._sent = self._acknowledged = -1
        self._epoch = 0
        self._resend_from: int | None = None
        self._kept: dict[int, _Message] = {}
        self._kept_bytes = 0
        self._waiting: dict[StreamKey, _Waiting] = {}
        self._frames: deque[Frame] = deque()
        self._ready = asyncio.Event()
        self._taken = asyncio.Event()
        self._time = time
        self.heard_at = self.used_at = time()

    @property
    def name(self) -> str:
        """What it is called now; another name means other numbers."""
        return f"{self._processor}/{self._number}"

    @property
    def state(self) -> LinkState:
        """How far this link has sent, and for how many streams."""
        return LinkState(self.name, self._sent, len(self.streams), self._first)

    @property
    def idle(self) -> bool:
        """Whether everything that was given to it has arrived, and no stream uses it."""
        return not (self.streams or self._due or self._kept)

    @property
    def _full(self) -> bool:
        return len(self._kept) >= MAX_UNACKED_MESSAGES or self._kept_bytes >= MAX_UNACKED_BYTES

    @property
    def _due(self) -> bool:
        return bool(self._waiting or self._frames)

    def accept(self, key: StreamKey) -> None:
        """Say that work on a request has begun."""
        self._say(key, Frame("accepted", key.stream, key.attempt))

    def ask(self, key: StreamKey, question: int) -> None:
        """Ask whether a request is still wanted."""
        self._say(key, Frame("confirm", key.stream, key.attempt, question=question))

    def hand_back(self, key: StreamKey) -> None:
        """Say that a request was not begun, and that another processor should."""
        self._say(key, Frame("returned", key.stream, key.attempt))

    def _say(self, key: StreamKey, frame: Frame) -> None:
        waiting = self._queue(key)
        if not waiting.signals or waiting.signals[-1] != (len(waiting.records), frame):
            waiting.signals.append((len(waiting.records), frame))

    async def send(self, key: StreamKey, record: Response) -> None:
        """Queue a record; waits while its stream has `MAX_WAITING_RECORDS` queued, unless it is the last one."""
        waiting = self._queue(key)
        while len(waiting.records) >= MAX_WAITING_RECORDS and not record.last:
            await self._taken.wait()
            waiting = self._queue(key)
        waiting.records.append(record)

    def acknowledge(self, ack: Ack) -> None:
        """The requestor has everything up to there."""
        if not self._heeds(ack) or ack.seq <= self._acknowledged:
            return
        self._acknowledged = ack.seq
        for kept in [kept for kept in self._kept if kept <= ack.seq]:
            self._kept_bytes -= len(self._kept.pop(kept).body)
        self._ready.set()

    def resend(self, ack: Ack) -> None:
        """The requestor misses what follows."""
        first = ack.seq + 1
        if self._heeds(ack) and first > self._acknowledged:
            self._resend_from = first if self._resend_from is None else min(first, self._resend_from)
            self._ready.set()

    def _heeds(self, ack: Ack) -> bool:
        """Whether the receiving end that we send to says this; a newer one has nothing of what went before."""
        if self._epoch == 0:
            self._epoch = ack.epoch
        if ack.epoch > self._epoch:
            self._renew()
        return ack.epoch == self._epoch

    def _renew(self) -> None:
        """The requestor has forgotten this link (it took us for dead): start anew, with what it does not have yet."""
        self._number = new_number()
        self._epoch = 0
        kept = enumerate(self._kept.values())
        self._kept = {seq: _Message(self.name, seq, message.body) for seq, message in kept}
        self._sent, self._acknowledged, self._resend_from = len(self._kept) - 1, -1, 0
        self._ready.set()

    async def flush(self) -> None:
        """Return once nothing waits for the link any more; what is on its way may still be."""
        while self._due:
            await self._taken.wait()

    async def run(self) -> None:
        """Send, in order and at most `MAX_IN_FLIGHT_MESSAGES` messages at a time, until cancelled."""
        room = asyncio.Semaphore(MAX_IN_FLIGHT_MESSAGES)
        async with asyncio.TaskGroup() as sends:
            while True:
                await self._ready.wait()
                self._ready.clear()
                if self._resend_from is not None:
                    first, self._resend_from = self._resend_from, None
                    again = [message for seq, message in self._kept.items() if seq >= first]
                    # Side by side: far from the broker, one after the other would take a round trip each.
                    for start in range(0, len(again), MAX_CONCURRENT_RESENDS):
                        await asyncio.gather(*map(self._publish, again[start : start + MAX_CONCURRENT_RESENDS]))
                while self._due and not self._full and self._resend_from is None:
                    await room.acquire()
                    message = self._next()
                    sends.create_task(self._publish(message)).add_done_callback(lambda _: room.release())

    def _queue(self, key: StreamKey) -> _Waiting:
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = _Waiting()
            self._ready.set()
        return waiting

    def _next(self) -> _Message:
        """The next message, kept from now on until the requestor has it."""
        body = self._take()
        self._sent += 1
        self._kept_bytes += len(body)
        message = self._kept[self._sent] = _Message(self.name, self._sent, body)
        return message

    def _take(self) -> bytes:
        """What waits, joined, up to `MAX_JOINED_BYTES` bytes, or half of what the bus carries."""
        frames: list[Frame] = []
        largest = self._largest
        size, limit = 0, min(MAX_JOINED_BYTES, self._bus.max_message // 2)
        while size < limit and (self._frames or self._waiting):
            if not self._frames:
                key = next(iter(self._waiting))
                self._frames.extend(self._make_frames(key, self._waiting.pop(key)))
            if frames and size + len(self._frames[0].record) > largest:
                break
            frames.append(self._frames.popleft())
            size += len(frames[-1].record)
        self.used_at = self._time()
        taken, self._taken = self._taken, asyncio.Event()
        taken.set()
        return encode(frames)

    @property
    def _largest(self) -> int:
        """Bytes of one record that the bus carries."""
        return self._bus.max_message - FRAMING_BYTES

    async def _publish(self, message: _Message) -> None:
        """Publish until the bus has it, or it is acknowledged, renamed, or the link is closed."""
        properties = {"link": message.link, "processor": self._processor, "seq": str(message.seq)}
        while self._kept.get(message.seq) is message:
            try:
                return await self._bus.publish(self.inbox, message.body, properties)
            except TooLarge:
                message = self._shrink(message)
                await asyncio.sleep(0)
            except TgError as error:
                log.warning("link.publish_failed", link=message.link, seq=message.seq, error=error.type)
                await asyncio.sleep(RETRY_SECONDS)
        return None

    def _shrink(self, message: _Message) -> _Message:
        """The same message without its largest record: that stream ends here, the others go on."""
        frames = decode(list[Frame], message.body)
        index = max(range(len(frames)), key=lambda index: len(frames[index].record))
        frames[index] = self._failure(StreamKey(frames[index].stream, frames[index].attempt))
        log.warning("link.too_large", link=message.link, seq=message.seq, stream=frames[index].stream)
        smaller = self._kept[message.seq] = _Message(message.link, message.seq, encode(frames))
        self._kept_bytes += len(smaller.body) - len(message.body)
        return smaller

    def _failure(self, key: StreamKey) -> Frame:
        return Frame("end", key.stream, key.attempt, msgspec.Raw(encode(self._failed(_TOO_LARGE))))

    def _make_frames(self, key: StreamKey, waiting: _Waiting) -> list[Frame]:
        """In the order in which it was given: a question must not overtake the answer that makes it needless."""
        if not waiting.signals:
            return self._join(key, waiting.records)
        frames: list[Frame] = []
        done = 0
        for position, signal in waiting.signals:
            frames += self._join(key, waiting.records[done:position])
            frames.append(signal)
            done = position
        return frames + self._join(key, waiting.records[done:])

    def _join(self, key: StreamKey, records: Sequence[Response]) -> list[Frame]:
        """As few frames as possible, each small enough to travel; a single record that is not ends its stream."""
        if not records:
            return []
        joined = type(records[0]).join(records)
        bodies = [encode(record) for record in joined]
        if max(map(len, bodies)) <= self._largest:
            pairs = zip(joined, bodies, strict=True)
            return [
                Frame("end" if record.last else "record", key.stream, key.attempt, msgspec.Raw(body))
                for record, body in pairs
            ]
        if len(records) > 1:
            half = len(records) // 2
            return self._join(key, records[:half]) + self._join(key, records[half:])
        return [self._failure(key)]
