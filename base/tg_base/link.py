"""Processor -> one requestor's inbox: numbered messages that are kept until the requestor has them.

A link carries the frames of all streams between the two. While two messages are on their way, whatever comes
joins the next one: with no load every chunk is a message of its own, under load messages grow instead of queues.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec
import structlog

from tg_base.bus.api import MAX_MESSAGE, Bus
from tg_base.frames import Frame, Have, LinkState, StreamKey
from tg_schema.codec import encode
from tg_schema.errors import Error, TgError, TooLarge
from tg_schema.response import Response

log = structlog.get_logger()

WINDOW = 256
"""Messages that may be unacknowledged; well below the inbox's receiver queue, so that the broker drops none."""
KEPT = 16 * 1024 * 1024
"""Bytes that may be unacknowledged; one message always fits."""
MESSAGE = 256 * 1024
"""Bytes of records that join one message, unless a single record is larger."""
LARGEST = MAX_MESSAGE - MESSAGE
"""Bytes of one record; a larger one cannot travel and ends its stream."""
WAITING = 256
"""Records of one stream that may wait for the link; beyond it the provider is slowed down."""
IN_FLIGHT = 2
"""Messages on their way at once: a chunk need not wait for the broker's answer to the one before it."""
RETRY = 0.25
"""Seconds between tries to publish while the bus is away."""


_NUMBERS = count(1)
_ASKS = msgspec.Raw(b"true")
_TOO_LARGE = Error(type=TooLarge.type, message="the answer holds a record that is too large to travel")


@dataclass(slots=True)
class _Waiting:
    records: list[Response] = field(default_factory=list)
    accepted: bool = False
    asks: bool = False


class Link:
    """The sending end. `run` must be running as a task for as long as the link is used."""

    def __init__(self, bus: Bus, inbox: str, processor: str, time: Callable[[], float]) -> None:
        self.inbox = inbox
        self.name = _name(processor)
        self.streams: set[StreamKey] = set()
        self._bus = bus
        self._processor = processor
        self._sent = self._acknowledged = -1
        self._end = 0
        self._resend_from: int | None = None
        self._kept: dict[int, bytes] = {}
        self._kept_bytes = 0
        self._waiting: dict[StreamKey, _Waiting] = {}
        self._frames: deque[Frame] = deque()
        self._ready = asyncio.Event()
        self._taken = asyncio.Event()
        self._time = time
        self.heard_at = self.used_at = time()

    @property
    def state(self) -> LinkState:
        """How far this link has sent, and for how many streams."""
        return LinkState(self.name, self._sent, len(self.streams))

    @property
    def idle(self) -> bool:
        """Whether everything that was given to it has arrived, and no stream uses it."""
        return not (self.streams or self._due or self._kept)

    @property
    def _full(self) -> bool:
        return len(self._kept) >= WINDOW or self._kept_bytes >= KEPT

    @property
    def _due(self) -> bool:
        return bool(self._waiting or self._frames)

    def accept(self, key: StreamKey) -> None:
        """Say that work on a request has begun."""
        self._queue(key).accepted = True

    def ask(self, key: StreamKey) -> None:
        """Ask whether a request is still wanted."""
        self._queue(key).asks = True

    async def send(self, key: StreamKey, record: Response) -> None:
        """Give a record to the link; waits where its stream has `WAITING` before it, unless it is the last one."""
        waiting = self._queue(key)
        while len(waiting.records) >= WAITING and not record.last:
            await self._taken.wait()
            waiting = self._queue(key)
        waiting.records.append(record)

    def acknowledge(self, have: Have) -> None:
        """The requestor has everything up to there."""
        if not self._heeds(have) or have.seq <= self._acknowledged:
            return
        self._acknowledged = have.seq
        for kept in [kept for kept in self._kept if kept <= have.seq]:
            self._kept_bytes -= len(self._kept.pop(kept))
        self._ready.set()

    def resend(self, have: Have) -> None:
        """The requestor misses what follows."""
        first = have.seq + 1
        if self._heeds(have) and first > self._acknowledged:
            self._resend_from = first if self._resend_from is None else min(first, self._resend_from)
            self._ready.set()

    def _heeds(self, have: Have) -> bool:
        """Whether the receiving end that we send to says this; a newer one has nothing of what went before."""
        if self._end == 0:
            self._end = have.end
        if have.end > self._end:
            self._renew()
        return have.end == self._end

    def _renew(self) -> None:
        """The requestor has forgotten this link (it took us for dead): start anew, with what it does not have yet."""
        self.name = _name(self._processor)
        self._end = 0
        self._kept = dict(enumerate(self._kept.values()))
        self._sent, self._acknowledged, self._resend_from = len(self._kept) - 1, -1, 0
        self._ready.set()

    async def flushed(self) -> None:
        """Return once nothing waits for the link any more; what is on its way may still be."""
        while self._due:
            await self._taken.wait()

    async def run(self) -> None:
        """Send, in order and at most `IN_FLIGHT` messages at a time, until cancelled."""
        room = asyncio.Semaphore(IN_FLIGHT)
        async with asyncio.TaskGroup() as sends:
            while True:
                await self._ready.wait()
                self._ready.clear()
                if self._resend_from is not None:
                    first, self._resend_from = self._resend_from, None
                    for seq in [seq for seq in self._kept if seq >= first]:
                        await self._publish(seq, self._kept.get(seq))
                while self._due and not self._full and self._resend_from is None:
                    await room.acquire()
                    self._sent += 1
                    body = self._kept[self._sent] = self._take()
                    self._kept_bytes += len(body)
                    sends.create_task(self._publish(self._sent, body)).add_done_callback(lambda _: room.release())

    def _queue(self, key: StreamKey) -> _Waiting:
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = _Waiting()
            self._ready.set()
        return waiting

    def _take(self) -> bytes:
        """The next message: what waits, joined, up to `MESSAGE` bytes."""
        frames: list[Frame] = []
        size = 0
        while size < MESSAGE and (self._frames or self._waiting):
            if not self._frames:
                key = next(iter(self._waiting))
                self._frames.extend(_framed(key, self._waiting.pop(key)))
            frames.append(self._frames.popleft())
            size += len(frames[-1].record)
        self.used_at = self._time()
        taken, self._taken = self._taken, asyncio.Event()
        taken.set()
        return encode(frames)

    async def _publish(self, seq: int, body: bytes | None) -> None:
        """Publish until the bus has it. A requestor that is gone ends this by the end of the whole link."""
        if body is None:
            return None
        properties = {"link": self.name, "processor": self._processor, "seq": str(seq)}
        while True:
            try:
                return await self._bus.publish(self.inbox, body, properties)
            except TgError as error:
                log.warning("link.publish_failed", link=self.name, seq=seq, error=error.type)
                await asyncio.sleep(RETRY)


def _name(processor: str) -> str:
    return f"{processor}/{next(_NUMBERS)}"


def _framed(key: StreamKey, waiting: _Waiting) -> list[Frame]:
    told = [Frame(key.stream, key.attempt, last=False)] if waiting.accepted else []
    if waiting.asks:
        told.append(Frame(key.stream, key.attempt, last=False, record=_ASKS))
    return told + _joined(key, waiting.records)


def _joined(key: StreamKey, records: Sequence[Response]) -> list[Frame]:
    """As few frames as possible, each below `LARGEST`."""
    joined = type(records[0]).joined(records) if records else ()
    bodies = [encode(record) for record in joined]
    if all(len(body) <= LARGEST for body in bodies):
        pairs = zip(joined, bodies, strict=True)
        return [Frame(key.stream, key.attempt, last=record.last, record=msgspec.Raw(body)) for record, body in pairs]
    if len(records) > 1:
        half = len(records) // 2
        return _joined(key, records[:half]) + _joined(key, records[half:])
    return _joined(key, [type(records[0]).failed(_TOO_LARGE)])
