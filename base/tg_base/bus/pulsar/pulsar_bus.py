"""Publisher -> broker -> subscriber: the bus over Apache Pulsar.

It uses the client's callbacks, and its blocking calls from threads of its own. The client's asyncio interface loses the
message of a cancelled receive, and crashes the process if its loop is closed.

- A send returns at once; its completion comes from a thread of the client, with one wake-up of the loop for many.
- A receive returns at once too; its message comes from a thread of the client (`bounded_reader.py`).
- The first `MAX_READER_THREADS` readers of non-persistent topics, which have most messages, have a thread each instead:
  a blocking receive costs less than a callback (`threaded_source.py`).
- Calls that wait for the broker (opening, closing, ping) run in a small thread pool.

Closing is idempotent and bounded, and runs at interpreter exit if nothing else has closed the bus.
"""

import asyncio
import atexit
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

import pulsar
from typing_extensions import override

from tg_base.bus.core import (
    BoundedReader,
    Bus,
    BusOptions,
    Delivery,
    Entry,
    Handoff,
    LogWriter,
    Source,
    ThreadedSource,
    check_log,
    is_persistent,
)
from tg_base.bus.pulsar import topic_log
from tg_base.bus.pulsar.client import Broker, close_quietly, error_of, in_time
from tg_base.bus.pulsar.consumer import Consumer, size_buffers
from tg_base.bus.pulsar.sender import Sender, Sent
from tg_base.bus.pulsar.shared_client import PROPERTIES_BYTES, SharedClient
from tg_base.bus.pulsar.silence import WATCH_SECONDS, Silence
from tg_schema import TgError
from tg_schema.errors import BusError, TooLarge

if TYPE_CHECKING:
    from tg_base.bus.pulsar.consumer import Received

LEAVE_TIMEOUT_SECONDS = 1.0
"""Seconds that leaving a subscription waits for the broker; after that, closing continues in the background."""
IDLE_PRODUCER_SECONDS = 60.0
"""Seconds without a publish after which a topic's producer is closed."""

MAX_CALLS = 6
"""Concurrent calls that wait for the broker, such as opening and closing; each takes a thread."""
MAX_READER_THREADS = 4
"""Readers of a non-persistent topic that have a thread each: an inbox, presence, a control topic, announce."""

T = TypeVar("T")


class PulsarBus(Bus):
    """One broker. Belongs to the running event loop."""

    def __init__(self, url: str, options: BusOptions) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = SharedClient(Broker(url, options))
        self._pool = ThreadPoolExecutor(MAX_CALLS, thread_name_prefix="bus")
        self._senders: dict[str, Sender] = {}
        self._retired: list[Sender] = []
        self._readers: dict[Consumer, BoundedReader[Received]] = {}
        self._reader_threads = 0
        self._erasing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._silence = Silence()
        self._closing: asyncio.Future[None] | None = None
        self._sent: Handoff[Sent] = Handoff(self._loop, self._on_sent)
        self._sweep = self._loop.call_later(IDLE_PRODUCER_SECONDS / 2, self._close_idle)
        self._watching = self._loop.call_later(WATCH_SECONDS, self._watch)
        atexit.register(self._close)

    @property
    @override
    def max_message(self) -> int:
        return self._client.max_message

    @property
    @override
    def in_process(self) -> bool:
        return False

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        self._check_size(body, properties)
        sender = self._senders.get(topic) or self._open_sender(topic)
        producer = sender.producer
        if producer is None or sender.window.full:
            producer = await sender.enter_in_turn(len(body))
        else:
            sender.window.enter(len(body))
        sender.used = self._loop.time()
        sent: asyncio.Future[None] = self._loop.create_future()

        # Called in a thread of the client's: it only hands the result over, because a future belongs to its loop.
        def taken(result: pulsar.Result, _: object) -> None:
            self._sent.put(Sent(sender, len(body), sent, result))

        accepted = False
        try:
            producer.send_async(body, taken, dict(properties))
            accepted = True
        finally:
            if not accepted:
                sender.window.leave(len(body))
        # If the publisher is cancelled here, the message still counts against the window until the broker has answered.
        await sent

    def _check_size(self, body: bytes, properties: Mapping[str, str]) -> None:
        if len(body) > self.max_message or _size(properties) > PROPERTIES_BYTES:
            most = f"{self.max_message} bytes, and {PROPERTIES_BYTES} of properties"
            raise TooLarge(f"a message holds at most {most}; this one has {len(body)} and {_size(properties)}")

    def _open_sender(self, topic: str) -> Sender:
        self._check_open()
        is_persistent(topic)
        opening = self._off_loop(lambda: self._client.produce(topic))
        sender = self._senders[topic] = Sender(opening, self._loop.time())
        opening.add_done_callback(lambda opened: self._on_opened(topic, sender, opened))
        return sender

    def _on_opened(self, topic: str, sender: Sender, opened: "asyncio.Future[pulsar.Producer]") -> None:
        if opened.cancelled() or opened.exception() is not None:
            self._forget(topic, sender)
        else:
            sender.producer = opened.result()

    def _forget(self, topic: str, sender: Sender) -> None:
        if self._senders.get(topic) is sender:
            del self._senders[topic]

    def _on_sent(self) -> None:
        arrived = self._sent.items
        while arrived:
            sender, size, sent, result = arrived.popleft()
            sender.window.leave(size)
            if result != pulsar.Result.Ok:
                self._fail_publish(sender, size, sent, result.name)
            elif not sent.done():
                sent.set_result(None)

    def _fail_publish(self, sender: Sender, size: int, sent: "asyncio.Future[None]", kind: str) -> None:
        if not sent.done():
            sent.set_exception(error_of(kind))
        if kind == "Timeout":
            self._silence.suspect = True
        elif kind == "MessageTooBig":
            self._client.lower_limit(size)
        else:
            # Any other failure may have left the producer unusable: the next publish opens a new one.
            for topic in [topic for topic, each in self._senders.items() if each is sender]:
                self._forget(topic, sender)
                self._close_sender(sender)

    def _close_idle(self) -> None:
        self._sweep = self._loop.call_later(IDLE_PRODUCER_SECONDS / 2, self._close_idle)
        before = self._loop.time() - IDLE_PRODUCER_SECONDS
        for topic, sender in tuple(self._senders.items()):
            if sender.producer is not None and sender.window.idle and sender.used < before:
                self._forget(topic, sender)
                self._close_sender(sender)

    def _close_sender(self, sender: Sender) -> None:
        if sender.producer is not None:
            self._pool.submit(close_quietly, sender.producer)

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        self._check_open()
        in_client, ahead = size_buffers(prefetch, persistent=is_persistent(topic))
        opening = self._off_loop(lambda: self._client.subscribe(topic, group, in_client))
        busy = group is None and not is_persistent(topic)
        async with self._reading(opening, ahead, busy=busy) as reader:
            yield reader

    @asynccontextmanager
    async def _reading(
        self, opening: "asyncio.Future[Consumer]", ahead: int, *, busy: bool = False
    ) -> "AsyncIterator[BoundedReader[Received]]":
        try:
            consumer = await in_time(opening)
        except (asyncio.CancelledError, BusError):
            opening.add_done_callback(self._close_unwanted)
            raise
        with self._lend_thread(consumer, busy=busy) as source:
            reader = self._readers[consumer] = BoundedReader(self._loop, source, ahead)
            try:
                if self._closing is not None:
                    reader.end()
                yield reader
            finally:
                reader.end()
                if self._closing is None:
                    del self._readers[consumer]
                    await asyncio.wait([self._off_loop(reader.close)], timeout=LEAVE_TIMEOUT_SECONDS)

    @contextmanager
    def _lend_thread(self, consumer: Consumer, *, busy: bool) -> "Iterator[Source[Received]]":
        if not busy or self._reader_threads == MAX_READER_THREADS:
            yield consumer
            return
        self._reader_threads += 1
        try:
            yield ThreadedSource(consumer)
        finally:
            self._reader_threads -= 1

    def _close_unwanted(self, opening: "asyncio.Future[Consumer]") -> None:
        if not opening.cancelled() and opening.exception() is None and self._closing is None:
            self._pool.submit(opening.result().close)

    def _watch(self) -> None:
        """Reopen lost connections: the client does it too, but with pauses that grow to a minute."""
        self._watching = self._loop.call_later(WATCH_SECONDS, self._watch)
        self._close_retired()
        silent = self._silence.lasting(self._readers, self._senders.values())
        if silent is not None:
            self._silence.mending = True
            self._off_loop(lambda: self._client.reopen_all(silent)).add_done_callback(self._on_reopened)

    def _on_reopened(self, reopening: "asyncio.Future[dict[Consumer, TgError | None] | None]") -> None:
        self._silence.mending = False
        outcomes = reopening.result()
        if outcomes is None or self._closing is not None:
            return
        for consumer, error in self._silence.take_refused(outcomes, self._loop.time()):
            if consumer in self._readers:
                self._readers[consumer].end(error)
        for topic, sender in tuple(self._senders.items()):
            if sender.silent:
                self._forget(topic, sender)
                self._retired.append(sender)
                sender.window.close(error_of("NotConnected"))

    def _close_retired(self) -> None:
        """Close replaced producers once they are idle: their sends in flight may still succeed."""
        idle = [sender for sender in self._retired if sender.window.idle]
        self._retired = [sender for sender in self._retired if sender not in idle]
        for sender in idle:
            self._close_sender(sender)

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        self._check_log(topic)
        self._check_size(body, properties)
        return await in_time(self._off_loop(lambda: self._client.append(topic, body, properties)))

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        self._check_log(topic)
        if topic not in self._senders:
            self._open_sender(topic)
        try:
            yield LogWriter(topic, self.publish)
        finally:
            # A producer that is not open yet is closed when it has been idle for long enough.
            if (sender := self._senders.get(topic)) is not None and sender.producer is not None:
                self._forget(topic, sender)
                self._retired.append(sender)

    @override
    @asynccontextmanager
    async def follow(self, topic: str, after: str) -> AsyncIterator[AsyncIterator[Entry]]:
        self._check_log(topic)
        start, ahead = topic_log.find_position(after), topic_log.READ_AHEAD_ENTRIES
        opening = self._off_loop(lambda: self._client.subscribe(topic, None, ahead, start))
        async with self._reading(opening, ahead) as reader:
            yield topic_log.FollowedLog(reader)

    @override
    async def read(self, topic: str) -> tuple[Entry, ...]:
        self._check_log(topic)
        return await in_time(self._off_loop(lambda: topic_log.read(self._client.handle, topic)))

    @override
    async def erase(self, topic: str) -> None:
        self._check_log(topic)
        # Erase one after the other: of two concurrent erasures, the broker sometimes leaves one unanswered.
        async with self._erasing.setdefault(topic, asyncio.Lock()):
            await in_time(self._off_loop(lambda: topic_log.erase(self._client.handle, topic)))

    @override
    async def ping(self, topic: str | None = None, *, produce: bool = False) -> None:
        self._check_open()
        await in_time(self._off_loop(lambda: self._client.ping(topic, produce=produce)))

    @override
    async def aclose(self) -> None:
        if self._closing is None:
            self._sweep.cancel()
            self._watching.cancel()
            for reader in tuple(self._readers.values()):
                reader.end()
            closer = ThreadPoolExecutor(1, thread_name_prefix="bus-close")
            self._closing = self._loop.run_in_executor(closer, self._close)
            closer.shutdown(wait=False)
            for sender in self._senders.values():
                sender.window.close(error_of("AlreadyClosed"))
            self._senders.clear()
        await asyncio.shield(self._closing)
        self._pool.shutdown(wait=False)

    def _close(self) -> None:
        """Close consumers and readers, then the client: they survive no other order. Runs in any thread."""
        atexit.unregister(self._close)
        for reader in tuple(self._readers.values()):
            reader.close()
        self._client.close()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise error_of("AlreadyClosed")

    def _check_log(self, topic: str) -> None:
        check_log(topic)
        self._check_open()

    def _off_loop(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        return self._loop.run_in_executor(self._pool, work)


def _size(properties: Mapping[str, str]) -> int:
    """Bytes of the properties; an upper estimate if they are small."""
    largest = 4 * sum(len(name) + len(value) for name, value in properties.items())
    if largest <= PROPERTIES_BYTES:
        return largest
    return sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
