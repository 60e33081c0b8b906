"""Appender -> broker -> reader: a persistent topic as a log that the broker keeps until it is erased.

A broker without retention deletes a topic that has no subscription. So each log has a durable subscription that nobody
reads. Erasing the log removes that subscription, and the broker then deletes the idle topic. All calls block; any
thread may make them.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Final, Self

import pulsar
import stamina
import structlog
from typing_extensions import override

from tg_base.bus.core import Delivery, Entry
from tg_base.bus.pulsar.client import OPERATION_TIMEOUT_SECONDS, close_quietly, our_errors
from tg_base.bus.pulsar.consumer import message_id_of, properties_of
from tg_base.bus.pulsar.sender import open_producer
from tg_schema.errors import BadRequest, BusError

if TYPE_CHECKING:
    from _pulsar import MessageId

log = structlog.get_logger()

_KEEPER: Final = "tg-log"
"""The subscription that holds the entries."""
_ERASED: Final = "tg-erased"
"""Property of the entry that hides all earlier ones, since the broker deletes the topic only a minute or two later."""
ERASE_ATTEMPTS: Final = 10
"""Attempts to erase; the last comes about a second after the first."""
READ_AHEAD_ENTRIES: Final = 100
"""Entries that the client buffers while a log is read."""
_POSITION: Final = re.compile(r"(\d{1,18}):(\d{1,18})", re.ASCII)


def append(client: pulsar.Client, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
    """Append one entry, and return its position.

    Raises:
        BusError: the broker did not answer in time, or refused.
        TooLarge: the entry is over the broker's limit.
    """
    close_quietly(_hold(client, topic))
    producer = open_producer(client, topic)
    try:
        with our_errors():
            return _name_position(producer.send(body, dict(properties)))
    finally:
        close_quietly(producer)


def find_position(position: str) -> pulsar.MessageId:
    """The client's message id of a position.

    Raises:
        BadRequest: the text is not a position.
    """
    found = _POSITION.fullmatch(position)
    if found is None:
        raise BadRequest("not a position: give the position of an entry")
    return pulsar.MessageId(-1, int(found[1]), int(found[2]), -1)


def _name_position(message: "MessageId | pulsar.MessageId") -> str:
    return f"{message.ledger_id()}:{message.entry_id()}"


class FollowedLog(AsyncIterator[Entry]):
    """The entries that a reader of the topic receives, until the log is erased.

    Args:
        deliveries: the queue of the reader's messages.
    """

    def __init__(self, deliveries: AsyncIterator[Delivery]) -> None:
        self._deliveries = deliveries
        self._over = False

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Entry:
        while not self._over:
            delivery = await anext(self._deliveries)
            message = message_id_of(delivery)
            try:
                properties = delivery.properties
            except BadRequest:
                continue
            if _ERASED in properties or message is None:
                self._over = True
            else:
                return Entry(delivery.body, properties, _name_position(message))
        raise StopAsyncIteration


def read(client: pulsar.Client, topic: str) -> tuple[Entry, ...]:
    """All entries since the last erasure; foreign messages are skipped. Raises BusError as `append`."""
    entries: list[Entry] = []
    with our_errors():
        reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=READ_AHEAD_ENTRIES)
        try:
            while reader.has_message_available():
                message = reader.read_next(OPERATION_TIMEOUT_SECONDS * 1000)
                properties = properties_of(message)
                if properties is not None and _ERASED in properties:
                    entries.clear()
                elif properties is not None:
                    entries.append(Entry(message.data(), properties, _name_position(message.message_id())))
        finally:
            close_quietly(reader)
    return tuple(entries)


def erase(client: pulsar.Client, topic: str) -> None:
    """Hide all entries, and let the broker delete them. Raises BusError as `append`."""
    # Another gateway that appends or erases at the same time holds the subscription for a moment. Until then the broker
    # refuses to remove it, and while it is being removed, nobody can hold it.
    _until_alone(lambda: append(client, topic, b"", {_ERASED: "1"}))
    try:
        _until_alone(lambda: _release(client, topic))
    except BusError as error:
        # The entries are hidden already. Forcing the removal could lose what another gateway has appended since.
        log.warning("log.kept_by_broker", topic=topic, reason=error.message)


def _until_alone(work: Callable[[], object]) -> None:
    for attempt in stamina.retry_context(
        on=BusError,
        attempts=ERASE_ATTEMPTS,
        timeout=OPERATION_TIMEOUT_SECONDS,
        wait_initial=0.02,
        wait_max=0.2,
        wait_jitter=0.05,
    ):
        with attempt:
            work()


def _release(client: pulsar.Client, topic: str) -> None:
    holder = _hold(client, topic)
    try:
        with our_errors():
            holder.unsubscribe()
    finally:
        close_quietly(holder)


def _hold(client: pulsar.Client, topic: str) -> pulsar.Consumer:
    with our_errors():
        return client.subscribe(
            topic,
            _KEEPER,
            pulsar.ConsumerType.Shared,
            receiver_queue_size=0,
            initial_position=pulsar.InitialPosition.Earliest,
        )
