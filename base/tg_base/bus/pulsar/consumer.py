"""Broker -> deliveries: one subscription of the client, opened anew if the client has lost it."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

import pulsar
from typing_extensions import override

from tg_base.bus.core import BlockingSource, Delivery, is_persistent
from tg_base.bus.pulsar.client import close_quietly, error_of, our_errors
from tg_schema import TgError
from tg_schema.errors import BadRequest

if TYPE_CHECKING:
    from _pulsar import Message, MessageId

    Received = Message | pulsar.Message
    """A message of the client, or its public form, which has the same methods."""

RECEIVE_TIMEOUT_MILLISECONDS = 60_000
"""Milliseconds of one blocking receive; closing ends it at once."""
READER_QUEUE_MESSAGES = 10_000
"""Messages in the receiver queue of a non-persistent topic; the broker drops what arrives while it is full."""
NACK_DELAY_MILLISECONDS = 150
"""How long the client keeps a nacked message before it tells the broker; the client's minimum is 100."""


def size_buffers(prefetch: int, *, persistent: bool) -> tuple[int, int]:
    """How many messages of a subscription the client buffers, and how many we do; the sum is `prefetch`."""
    if not persistent:
        return READER_QUEUE_MESSAGES, READER_QUEUE_MESSAGES
    return prefetch - prefetch // 2, prefetch // 2


class Consumer(BlockingSource["Received"]):
    """A consumer of a group, or a reader without one. Any thread may call it; opening, reopening and closing block.

    Args:
        client: the client to open it on.
        topic: what to read.
        group: the subscription's name; None reads every message after `after`.
        queue: messages that the client buffers.
        after: the id of a message; None = the last message of the topic.

    Raises:
        BusError: the broker did not answer in time, or refused.
    """

    def __init__(
        self,
        client: pulsar.Client,
        topic: str,
        group: str | None,
        queue: int,
        after: "pulsar.MessageId | None" = None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._queue = queue
        self._persistent = is_persistent(topic)
        self._resumes = self._persistent and group is None
        self._last: MessageId | pulsar.MessageId = pulsar.MessageId.latest if after is None else after
        self._closed = False
        self._swapping = threading.Lock()
        self._handle = self._open()

    @property
    def connected(self) -> bool:
        """Whether the client believes that it is subscribed now."""
        return self._handle.is_connected()

    def reopen(self) -> None:
        """Reopen it, and close the old handle. Unacknowledged messages are redelivered.

        Raises:
            BusError: as on creation; the old subscription stays.
        """
        handle = self._open()
        # Under the lock, so that `close` in another thread closes the new handle, or keeps it from being used.
        with self._swapping:
            if not self._closed:
                handle, self._handle = self._handle, handle
        close_quietly(handle)

    @override
    def receive(self, taken: "Callable[[Received | TgError], None]") -> None:
        handle = self._handle

        # Called in a thread of the client's, or in this one if the client already has a message.
        def answered(result: pulsar.Result, message: "Message") -> None:
            if result != pulsar.Result.Ok:
                self._go_on(handle, result, taken)
                return
            self._note(message)
            taken(message)

        _receive_async(handle, answered)

    @override
    def wait(self) -> "Received":
        while True:
            handle = self._handle
            try:
                read = handle.read_next if isinstance(handle, pulsar.Reader) else handle.receive
                message: Received = read(RECEIVE_TIMEOUT_MILLISECONDS)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException as failure:
                if not self._is_replaced(handle):
                    raise error_of(type(failure).__name__) from None
            else:
                self._note(message)
                return message

    def _note(self, message: "Received") -> None:
        if self._resumes:
            self._last = message.message_id()

    def _is_replaced(self, handle: pulsar.Consumer | pulsar.Reader) -> bool:
        """Whether `reopen` replaced the handle during a receive, which then goes on with the new one."""
        with self._swapping:
            return handle is not self._handle

    def _go_on(
        self,
        handle: pulsar.Consumer | pulsar.Reader,
        result: pulsar.Result,
        taken: "Callable[[Received | TgError], None]",
    ) -> None:
        if self._is_replaced(handle):
            self.receive(taken)
        else:
            taken(error_of(result.name))

    @override
    def open(self, message: "Received") -> Delivery:
        if self._resumes:
            return _Delivery(message, None, message.message_id())
        return _Delivery(message, self if self._persistent else None)

    @override
    def close(self) -> None:
        with self._swapping:
            self._closed = True
        close_quietly(self._handle)

    def settle(self, message: "MessageId", *, done: bool) -> None:
        """Acknowledge or nack a message.

        The client sends acknowledgements later, many at once, and a nack after `NACK_DELAY_MILLISECONDS`.

        A closed consumer has returned the message already.
        """
        handle = self._handle
        if isinstance(handle, pulsar.Consumer):
            with contextlib.suppress(pulsar.PulsarException):
                (handle.acknowledge if done else handle.negative_acknowledge)(message)

    def _open(self) -> pulsar.Consumer | pulsar.Reader:
        with our_errors("consume"):
            if self._group is None:
                # A reader, not a consumer: its subscription is not durable, so a dead process leaves no backlog behind.
                queue = max(self._queue, 1)
                return self._client.create_reader(
                    self._topic, self._last, receiver_queue_size=queue, reader_name=uuid4().hex
                )
            return self._client.subscribe(
                self._topic,
                self._group,
                pulsar.ConsumerType.Shared,
                receiver_queue_size=self._queue,
                negative_ack_redelivery_delay_ms=NACK_DELAY_MILLISECONDS,
                initial_position=pulsar.InitialPosition.Earliest,
            )


def _receive_async(
    handle: pulsar.Consumer | pulsar.Reader, answered: "Callable[[pulsar.Result, Message], None]"
) -> None:
    # The client's public classes offer a blocking receive, and one for asyncio that loses the message of a cancelled
    # receive. Both are built on this callback.
    if isinstance(handle, pulsar.Reader):
        handle._reader.read_next_async(answered)  # noqa: SLF001 - there is no public way
    else:
        handle._consumer.receive_async(answered)  # noqa: SLF001 - there is no public way


class _Delivery:
    """One received message."""

    __slots__ = ("_held", "_properties", "_published", "at", "body", "redelivered")

    def __init__(self, message: "Received", consumer: Consumer | None, at: "MessageId | None" = None) -> None:
        self.at = at
        self.body = message.data()
        self.redelivered = message.redelivery_count() > 0
        self._properties = properties_of(message)
        self._published = message.publish_timestamp()
        self._held = None if consumer is None else (consumer, message.message_id())

    @property
    def properties(self) -> Mapping[str, str]:
        if self._properties is None:
            raise BadRequest("the message's properties are not text: they must be UTF-8")
        return self._properties

    @property
    def age(self) -> float:
        return time.time() - self._published / 1000

    def ack(self) -> None:
        if self._held is not None:
            (consumer, message), self._held = self._held, None
            consumer.settle(message, done=True)

    def nack(self, after: float = 0.0) -> None:
        if self._held is not None:
            (consumer, message), self._held = self._held, None
            if after:
                # Until then the broker counts the message as delivered; if the consumer ends, the broker delivers it
                # again.
                asyncio.get_running_loop().call_later(after, lambda: consumer.settle(message, done=False))
            else:
                consumer.settle(message, done=False)


def message_id_of(delivery: Delivery) -> "MessageId | None":
    """The id of a message that was read without a group from a persistent topic; None for any other."""
    return delivery.at if isinstance(delivery, _Delivery) else None


def properties_of(message: "Received") -> Mapping[str, str] | None:
    """The properties; None if they are not UTF-8, since producers in other languages may write any bytes."""
    try:
        return message.properties()
    except UnicodeDecodeError:
        return None
