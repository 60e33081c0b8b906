"""Publisher -> subscriber inside one process: the reference implementation, and the bus of the embedded pipeline.

It does better than a broker in two ways: a non-persistent topic loses nothing while it has a subscriber, and a publish
waits (back-pressure) where a broker would drop.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import msgspec
from typing_extensions import override

from tg_base.bus.core import (
    MAX_MESSAGE_BYTES,
    Bus,
    BusOptions,
    Delivery,
    Entry,
    LogWriter,
    check_log,
    is_persistent,
)
from tg_base.bus.memory_log import MemoryLog
from tg_schema.errors import BadRequest, BusError, TooLarge

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Bytes of body buffered for a group or a reader before publishers wait; a single message may exceed it."""
MAX_UNCLAIMED_MESSAGES = 1_000
"""Messages that a persistent topic keeps while it has no group; the oldest are dropped first."""
NACK_DELAY_SECONDS = 0.1
"""Delay before a nacked message is redelivered, so that a member that nacks everything does not spin."""


class MemoryBus(Bus):
    """Topics in a dictionary. One object is one isolated bus; it belongs to the event loop that uses it.

    Args:
        max_waiting: messages buffered for a group, unacknowledged ones included, before publishers wait.
        publish_timeout: seconds that a publish waits for room before it fails.
    """

    max_message = MAX_MESSAGE_BYTES
    in_process = True

    def __init__(self, *, max_waiting: int = 10_000, publish_timeout: float = 10.0) -> None:
        self._topics: dict[str, _Topic] = {}
        self._logs: dict[str, MemoryLog] = {}
        self._next_entry = 0
        self._max_waiting = max_waiting
        self._publish_timeout = publish_timeout
        self._closed = False

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        # This runs for every chunk: a topic with room takes the message without a lock, a task switch or a timer.
        if self._closed or len(body) > MAX_MESSAGE_BYTES:
            _check_size(body)
            self._check_open()
        message = _Message(body, dict(properties), asyncio.get_running_loop().time())
        room = self._topics.get(topic)
        if room is None:
            if not is_persistent(topic):
                return
            room = self._topics[topic] = _Topic(self._max_waiting, persistent=True)
        if room.full or room.publishing.locked():
            await self._publish_when_room(room, message)
        else:
            room.put(message)

    async def _publish_when_room(self, room: "_Topic", message: "_Message") -> None:
        # The lock keeps the order of publishes: it serves its waiters in turn, and a later publish finds it locked.
        try:
            async with asyncio.timeout(self._publish_timeout), room.publishing:
                while room.full and not self._closed:
                    room.changed.clear()
                    await room.changed.wait()
                self._check_open()
                room.put(message)
        except TimeoutError:
            raise BusError("the topic's readers do not keep up and its queue is full; try again later") from None

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        self._check_open()
        room = self._topics.get(topic)
        if room is None:
            room = self._topics[topic] = _Topic(self._max_waiting, persistent=is_persistent(topic))
        queue = room.join(group, prefetch)
        reader = _Reader(room, queue)
        queue.readers.add(reader)
        try:
            yield reader
        finally:
            reader.leave()
            if room.leave(group, queue) and self._topics.get(topic) is room:
                del self._topics[topic]

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        _check_size(body)
        self._check_log(topic)
        log = self._logs.get(topic) or self._logs.setdefault(topic, MemoryLog(self._next_entry))
        return log.append(body, properties)

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        self._check_log(topic)
        yield LogWriter(topic, self.append)

    @override
    @asynccontextmanager
    async def follow(self, topic: str, after: str) -> AsyncIterator[AsyncIterator[Entry]]:
        self._check_log(topic)
        yield (self._logs.get(topic) or MemoryLog(self._next_entry)).follow(after)

    @override
    async def read(self, topic: str) -> tuple[Entry, ...]:
        self._check_log(topic)
        log = self._logs.get(topic)
        return () if log is None else tuple(log.entries)

    @override
    async def erase(self, topic: str) -> None:
        self._check_log(topic)
        if (log := self._logs.pop(topic, None)) is not None:
            log.close()
            # A later log of this name reuses no position, and skips one, so that a reader of the old log learns that it
            # was erased.
            self._next_entry = max(self._next_entry, log.end + 1)

    @override
    async def ping(self, topic: str | None = None, *, produce: bool = False) -> None:
        self._check_open()

    @override
    async def aclose(self) -> None:
        self._closed = True
        for room in self._topics.values():
            room.close()
        for log in self._logs.values():
            log.close()
        self._topics.clear()
        self._logs.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")

    def _check_log(self, topic: str) -> None:
        check_log(topic)
        self._check_open()


def open_memory_bus(url: str, _options: BusOptions) -> Bus:
    """A new bus for each call.

    Raises:
        BadRequest: the URL has more than `memory://`: two processes that give the same URL share nothing.
    """
    if url != "memory://":
        raise BadRequest("the bus in memory has no address: write memory://").at("url")
    return MemoryBus()


def _check_size(body: bytes) -> None:
    if len(body) > MAX_MESSAGE_BYTES:
        raise TooLarge(f"a message holds at most {MAX_MESSAGE_BYTES} bytes; this one has {len(body)}")


class _Message(msgspec.Struct, eq=False):
    """A published message, shared by all its deliveries."""

    body: bytes
    properties: Mapping[str, str]
    published: float


class _Delivery(msgspec.Struct, eq=False):
    """One message, delivered to one reader."""

    body: bytes
    properties: Mapping[str, str]
    redelivered: bool
    message: _Message
    reader: "_Reader"

    @property
    def age(self) -> float:
        return asyncio.get_running_loop().time() - self.message.published

    def ack(self) -> None:
        self.reader.ack(self.message)

    def nack(self, after: float = 0.0) -> None:
        self.reader.nack(self.message, after)


class _Queue:
    """The buffered messages of one group, or of one reader without a group."""

    def __init__(self, capacity: int, *, redelivers: bool) -> None:
        self.capacity = capacity
        self.redelivers = redelivers
        self.messages: deque[_Message] = deque()
        self.changed = asyncio.Event()
        self.readers: set[_Reader] = set()
        self.returned: set[int] = set()
        self.held = 0
        self.held_bytes = 0

    def put(self, message: _Message) -> None:
        self.messages.append(message)
        self.held += 1
        self.held_bytes += len(message.body)
        self.changed.set()

    def take_back(self, messages: Iterable[_Message]) -> None:
        """Queue these for redelivery, in their order and before all others."""
        returned = list(messages)
        self.returned.update(id(message) for message in returned)
        self.messages.extendleft(reversed(returned))


class _Topic:
    """The queues of one topic, and the messages that wait for its first group."""

    def __init__(self, max_waiting: int, *, persistent: bool) -> None:
        self._max_waiting = max_waiting
        self._persistent = persistent
        self._groups: dict[str, _Queue] = {}
        self._alone: list[_Queue] = []
        self._unclaimed: deque[_Message] = deque()
        self._unclaimed_bytes = 0
        self.publishing = asyncio.Lock()
        self.changed = asyncio.Event()

    @property
    def full(self) -> bool:
        for queues in (self._groups.values(), self._alone):
            for queue in queues:
                if queue.held >= queue.capacity or queue.held_bytes >= MAX_WAITING_BYTES:
                    return True
        return False

    def put(self, message: _Message) -> None:
        for queue in self._groups.values():
            queue.put(message)
        for queue in self._alone:
            queue.put(message)
        if self._persistent and not self._groups:
            self._keep(message)

    def _keep(self, message: _Message) -> None:
        self._unclaimed.append(message)
        self._unclaimed_bytes += len(message.body)
        while self._unclaimed_bytes > MAX_WAITING_BYTES or len(self._unclaimed) > MAX_UNCLAIMED_MESSAGES:
            self._unclaimed_bytes -= len(self._unclaimed.popleft().body)

    def join(self, group: str | None, prefetch: int) -> _Queue:
        """The queue that a new reader reads from."""
        if group is None:
            queue = _Queue(max(prefetch, 1), redelivers=False)
            self._alone.append(queue)
        elif group in self._groups:
            queue = self._groups[group]
        else:
            queue = self._groups[group] = _Queue(self._max_waiting, redelivers=self._persistent)
            for message in self._unclaimed:
                queue.put(message)
            self._unclaimed.clear()
            self._unclaimed_bytes = 0
        return queue

    def leave(self, group: str | None, queue: _Queue) -> bool:
        """Drop the messages that a queue without readers need not keep; True if the topic can be forgotten."""
        if group is None:
            self._alone.remove(queue)
        elif not self._persistent and not queue.readers:
            self._groups.pop(group, None)
        self.changed.set()
        return not (self._groups or self._alone or self._unclaimed or self.publishing.locked())

    def close(self) -> None:
        for queue in (*self._groups.values(), *self._alone):
            for reader in tuple(queue.readers):
                reader.leave()
        self.changed.set()


class _Reader(AsyncIterator[Delivery]):
    """One subscription. Several tasks may wait on it; each message goes to one of them."""

    def __init__(self, topic: _Topic, queue: _Queue) -> None:
        self._topic = topic
        self._queue = queue
        self._unacked: dict[int, _Message] = {}
        self._returning: dict[int, _Message] = {}
        self._left = False

    @override
    async def __anext__(self) -> Delivery:
        queue = self._queue
        while not queue.messages and not self._left:
            # Wakes all waiting readers, in order, since a reader that is cancelled just then must not lose a message.
            queue.changed.clear()
            await queue.changed.wait()
        if self._left:
            raise StopAsyncIteration
        message = queue.messages.popleft()
        if queue.redelivers:
            self._unacked[id(message)] = message
        else:
            self._free(message)
        return _Delivery(message.body, message.properties, id(message) in queue.returned, message, self)

    def ack(self, message: _Message) -> None:
        if self._unacked.pop(id(message), None) is not None:
            self._free(message)

    def nack(self, message: _Message, after: float) -> None:
        if self._unacked.pop(id(message), None) is not None:
            self._returning[id(message)] = message
            asyncio.get_running_loop().call_later(NACK_DELAY_SECONDS + after, self._give_back, message)

    def _give_back(self, message: _Message) -> None:
        if self._returning.pop(id(message), None) is not None:
            self._queue.take_back([message])
            self._queue.changed.set()

    def _free(self, message: _Message) -> None:
        queue = self._queue
        queue.returned.discard(id(message))
        queue.held -= 1
        queue.held_bytes -= len(message.body)
        # The lock is held only while a publisher waits for room.
        if self._topic.publishing.locked():
            self._topic.changed.set()

    def leave(self) -> None:
        """Return the unacknowledged messages to the queue, in their order, before all others; end the iteration."""
        if self._left:
            return
        self._left = True
        queue = self._queue
        queue.readers.discard(self)
        queue.take_back((*self._unacked.values(), *self._returning.values()))
        self._unacked.clear()
        self._returning.clear()
        queue.changed.set()
