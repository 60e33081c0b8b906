"""Publisher -> broker -> subscriber: the bus over Apache Pulsar, and the only file that knows its client.

The client's blocking face is used, from threads of our own, because its asyncio face loses the message of a cancelled
receive and ends the process where a loop closes under it:

- a send returns at once; its completion comes from the client's thread, many to one wake-up of the loop;
- every subscription has a thread that receives (`threaded_reader.py`);
- whatever may wait for the broker (opening, closing, ping) runs in a small pool of threads.

Closing is idempotent, bounded, and also done when the interpreter ends without it.
"""

import asyncio
import atexit
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar
from uuid import uuid4

import pulsar
from typing_extensions import override

from tg_base.bus.api import MAX_MESSAGE, Bus, Delivery
from tg_base.bus.handover import Handover
from tg_base.bus.options import BusOptions
from tg_base.bus.send_window import SendWindow
from tg_base.bus.threaded_reader import Source, ThreadedReader
from tg_base.bus.topic_name import is_persistent
from tg_schema.errors import BadRequest, BusError, TooLarge

OPERATION_TIMEOUT = 5
"""Seconds for opening, closing and looking up, and for a send until the broker has it."""
CALL_TIMEOUT = 8.0
"""Seconds that a call waits for its turn and for the broker, before a send begins."""
LEAVE_TIMEOUT = 1.0
"""Seconds that leaving a subscription waits for the broker; after that it goes on in the background."""
IN_FLIGHT = 1_000
IN_FLIGHT_BYTES = 32 * 1024 * 1024
IDLE = 60.0
"""Seconds without a publish after which a topic's producer is closed."""
RECEIVE_TIMEOUT = 60_000
"""Milliseconds that a receiving thread waits at a time; closing ends its wait at once."""
DROPPING_QUEUE = 10_000
"""Receiver queue on a non-persistent topic: the broker drops what finds it full."""

T = TypeVar("T")


class PulsarBus(Bus):
    """One client of one broker. Belongs to the running event loop."""

    def __init__(self, url: str, options: BusOptions) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = _client(url, options)
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="bus")
        self._senders: dict[str, _Sender] = {}
        self._readers: set[ThreadedReader] = set()
        self._closing: asyncio.Future[None] | None = None
        self._sent: Handover[_Sent] = Handover(self._loop, self._on_sent)
        self._sweep = self._loop.call_later(IDLE / 2, self._close_idle)
        atexit.register(self._close)

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        if len(body) > MAX_MESSAGE:
            raise TooLarge(f"a message holds at most {MAX_MESSAGE} bytes; this one has {len(body)}")
        sender = self._senders.get(topic) or self._open_sender(topic)
        if sender.producer is None or sender.window.full:
            await sender.enter_in_turn(len(body))
        else:
            sender.window.enter(len(body))
        sender.used = self._loop.time()
        sent: asyncio.Future[None] = self._loop.create_future()

        def taken(result: Any, _: object) -> None:
            self._sent.put(_Sent(sender, len(body), sent, result))

        try:
            sender.producer.send_async(body, taken, dict(properties))
        except BaseException:
            sender.window.leave(len(body))
            raise
        await sent

    def _open_sender(self, topic: str) -> "_Sender":
        self._check_open()
        is_persistent(topic)
        opening = self._off_loop(lambda: self._create_producer(topic))
        sender = self._senders[topic] = _Sender(opening, self._loop.time())
        opening.add_done_callback(lambda _: self._on_opened(topic, sender))
        return sender

    def _create_producer(self, topic: str) -> Any:
        with _our_errors():
            return self._client.create_producer(
                topic,
                send_timeout_millis=OPERATION_TIMEOUT * 1000,
                max_pending_messages=IN_FLIGHT + 1,
                max_pending_messages_across_partitions=0,
                batching_enabled=False,
            )

    def _on_opened(self, topic: str, sender: "_Sender") -> None:
        if sender.opened_badly:
            self._forget(topic, sender)

    def _forget(self, topic: str, sender: "_Sender") -> None:
        if self._senders.get(topic) is sender:
            del self._senders[topic]

    def _on_sent(self) -> None:
        arrived = self._sent.items
        while arrived:
            sender, size, sent, result = arrived.popleft()
            sender.window.leave(size)
            if result != pulsar.Result.Ok:
                self._failed(sender, sent, result.name)
            elif not sent.done():
                sent.set_result(None)

    def _failed(self, sender: "_Sender", sent: "asyncio.Future[None]", kind: str) -> None:
        if not sent.done():
            sent.set_exception(_error(kind))
        if kind not in {"Timeout", "MessageTooBig"}:
            # Whatever else it was, the next publish is better off with a new producer.
            for topic in [topic for topic, each in self._senders.items() if each is sender]:
                self._forget(topic, sender)
                self._pool.submit(_close_quietly, sender.producer)

    def _close_idle(self) -> None:
        self._sweep = self._loop.call_later(IDLE / 2, self._close_idle)
        before = self._loop.time() - IDLE
        for topic, sender in tuple(self._senders.items()):
            if sender.producer is not None and sender.window.idle and sender.used < before:
                self._forget(topic, sender)
                self._pool.submit(_close_quietly, sender.producer)

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        self._check_open()
        queues = _Queues.of(prefetch, persistent=is_persistent(topic))
        connecting = self._off_loop(lambda: self._connect(topic, group, queues.in_client))
        try:
            source = await _in_time(connecting)
        except (asyncio.CancelledError, BusError):
            connecting.add_done_callback(self._close_unwanted)
            raise
        reader = ThreadedReader(self._loop, source, queues.handed_over)
        self._readers.add(reader)
        try:
            if self._closing is not None:
                reader.end()
            yield reader
        finally:
            reader.end()
            if self._closing is None:
                self._readers.discard(reader)
                await asyncio.wait([self._off_loop(reader.close)], timeout=LEAVE_TIMEOUT)

    def _connect(self, topic: str, group: str | None, queue: int) -> "_Consumer":
        with _our_errors():
            if group is None:
                # A reader's subscription is not durable: a process that dies leaves nothing behind in the broker.
                reader = self._client.create_reader(
                    topic, pulsar.MessageId.latest, receiver_queue_size=max(queue, 1), reader_name=uuid4().hex
                )
                return _Consumer(reader, partial(reader.read_next, RECEIVE_TIMEOUT), None)
            consumer = self._client.subscribe(
                topic,
                group,
                pulsar.ConsumerType.Shared,
                receiver_queue_size=queue,
                initial_position=pulsar.InitialPosition.Earliest,
            )
        # Without a timeout the client looks for signals ten times a second; without a queue there is no other way.
        receive = partial(consumer.receive, RECEIVE_TIMEOUT) if queue else consumer.receive
        return _Consumer(consumer, receive, consumer.acknowledge if is_persistent(topic) else None)

    def _close_unwanted(self, connecting: "asyncio.Future[_Consumer]") -> None:
        if not connecting.cancelled() and connecting.exception() is None and self._closing is None:
            self._pool.submit(connecting.result().close)

    @override
    async def ping(self) -> None:
        self._check_open()
        await _in_time(self._off_loop(self._look_up))

    def _look_up(self) -> None:
        # Authorization refuses a topic that is not ours to see, and that is an answer too.
        with _our_errors(), contextlib.suppress(pulsar.AuthorizationError, pulsar.TopicNotFound):
            self._client.get_topic_partitions("non-persistent://tg/notify/ping")

    @override
    async def aclose(self) -> None:
        if self._closing is None:
            self._sweep.cancel()
            for reader in tuple(self._readers):
                reader.end()
            closer = ThreadPoolExecutor(1, thread_name_prefix="bus-close")
            self._closing = self._loop.run_in_executor(closer, self._close)
            closer.shutdown(wait=False)
            for sender in self._senders.values():
                sender.window.close(_error("AlreadyClosed"))
            self._senders.clear()
        await asyncio.shield(self._closing)
        self._pool.shutdown(wait=False)

    def _close(self) -> None:
        """Close in the order that the client survives: whoever receives, then the rest. Runs in any thread."""
        atexit.unregister(self._close)
        for reader in tuple(self._readers):
            reader.close()
        _close_quietly(self._client)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise _error("AlreadyClosed")

    def _off_loop(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        return self._loop.run_in_executor(self._pool, work)


class _Sender:
    """One topic's producer, from its first publish until nobody has used it for a while."""

    def __init__(self, opening: "asyncio.Future[Any]", now: float) -> None:
        self._opening = opening
        self.window = SendWindow(IN_FLIGHT, IN_FLIGHT_BYTES)
        self.producer: Any = None
        self.used = now

    @property
    def opened_badly(self) -> bool:
        return self._opening.cancelled() or self._opening.exception() is not None

    async def enter_in_turn(self, size: int) -> None:
        """Wait for the producer, and for room, and take it."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                self.producer = await asyncio.shield(self._opening)
                await self.window.enter_in_turn(size)
        except TimeoutError:
            raise _error("Timeout") from None


class _Sent(NamedTuple):
    """What became of one message."""

    sender: _Sender
    size: int
    sent: "asyncio.Future[None]"
    result: Any


class _Queues(NamedTuple):
    """Where the messages of one subscription may wait in this process."""

    in_client: int
    handed_over: int

    @classmethod
    def of(cls, prefetch: int, *, persistent: bool) -> Self:
        if not persistent:
            return cls(DROPPING_QUEUE, DROPPING_QUEUE)
        return cls(prefetch - prefetch // 2, prefetch // 2)


class _Consumer(Source):
    """A consumer or a reader of the client, behind the two verbs that a `ThreadedReader` needs."""

    def __init__(self, handle: Any, receive: Callable[[], Any], acknowledge: Callable[[Any], None] | None) -> None:
        self._handle = handle
        self._receive = receive
        self._acknowledge = acknowledge

    @override
    def receive(self) -> Delivery:
        while True:
            try:
                return _Delivery(self._receive(), self._acknowledge)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException as failure:
                raise _error(type(failure).__name__) from None

    @override
    def close(self) -> None:
        _close_quietly(self._handle)


class _Delivery:
    """One message as it came."""

    __slots__ = ("_acknowledge", "_id", "_published", "body", "properties")

    def __init__(self, message: Any, acknowledge: Callable[[Any], None] | None) -> None:
        self.body: bytes = message.data()
        self.properties: Mapping[str, str] = message.properties()
        self._published: int = message.publish_timestamp()
        self._id = None if acknowledge is None else message.message_id()
        self._acknowledge = acknowledge

    @property
    def age(self) -> float:
        return max(0.0, time.time() - self._published / 1000)

    def ack(self) -> None:
        if self._acknowledge is not None:
            acknowledge, self._acknowledge = self._acknowledge, None
            # The client only notes it, and sends it with others; one that is closed has given the message back.
            with contextlib.suppress(pulsar.PulsarException):
                acknowledge(self._id)


class _TokenFile:
    """Supplies the token whenever the client connects; one that can't be read leaves the last one in use."""

    def __init__(self, options: BusOptions) -> None:
        self._options = options
        self._last = options.token()

    def __call__(self) -> str:
        with contextlib.suppress(BadRequest):
            self._last = self._options.token()
        return self._last or ""


def _client(url: str, options: BusOptions) -> Any:
    named = options.token_env is not None or options.token_file is not None
    if options.trust_certs is not None and not options.trust_certs.is_file():
        raise BadRequest(f"the file {options.trust_certs} should hold the broker's authorities; it is not there")
    return pulsar.Client(
        url,
        authentication=pulsar.AuthenticationToken(_TokenFile(options)) if named else None,
        operation_timeout_seconds=OPERATION_TIMEOUT,
        connection_timeout_ms=OPERATION_TIMEOUT * 1000,
        stats_interval_in_seconds=0,
        tls_trust_certs_file_path=None if options.trust_certs is None else str(options.trust_certs),
        tls_validate_hostname=True,
        listener_name=options.listener_name,
        # The console logger writes to standard output, which belongs to the program.
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/stderr"),
    )


_SENTENCES = {
    "AlreadyClosed": "the bus is closed",
    "Timeout": "the broker did not answer in time; try again, and see that it is up and accepts our token",
    "ConnectError": "the broker can't be reached; try again",
    "NotConnected": "the connection to the broker is gone; try again",
    "AuthenticationError": "the broker does not accept our token; an operator must give a valid one",
    "AuthorizationError": "the broker does not let us use this topic; an operator must allow it",
    "TopicNotFound": "the broker has no such topic or namespace; an operator must create it",
    "ProducerBlockedQuotaExceededError": "the topic's backlog is full; try again later",
    "ProducerBlockedQuotaExceededException": "the topic's backlog is full; try again later",
}


def _error(kind: str) -> BusError | TooLarge:
    """Our error for a kind of the client's; the client's own words stay here."""
    if kind == "MessageTooBig":
        return TooLarge("the message with its properties is over the broker's limit; send less")
    return BusError(_SENTENCES.get(kind) or f"the broker refused ({kind}); try again")


@contextlib.contextmanager
def _our_errors() -> Any:
    try:
        yield
    except pulsar.PulsarException as failure:
        raise _error(type(failure).__name__) from None


async def _in_time(future: "asyncio.Future[T]") -> T:
    """What the pool makes of a call; the call itself goes on when the caller has left."""
    try:
        # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes together with the result.
        async with asyncio.timeout(CALL_TIMEOUT):
            return await asyncio.shield(future)
    except TimeoutError:
        raise _error("Timeout") from None


def _close_quietly(handle: Any) -> None:
    """Close a producer, consumer, reader or client; what is closed or unreachable already is as good as closed."""
    with contextlib.suppress(pulsar.PulsarException):
        handle.close()
