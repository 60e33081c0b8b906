"""Appender -> broker -> reader: a persistent topic as a log that the broker keeps until it is erased.

A broker without retention deletes a topic that has no subscription. So a log has a durable one that nobody reads. To
erase a log is to remove it; the broker then deletes the idle topic. All calls block; any thread may make them.
"""

from collections.abc import Mapping
from typing import Final

import pulsar

from tg_base.bus.core import Entry
from tg_base.bus.pulsar.client import OPERATION_TIMEOUT_SECONDS, close_quietly, our_errors
from tg_base.bus.pulsar.consumer import properties_of
from tg_base.bus.pulsar.sender import Producer

_KEEPER: Final = "tg-log"
"""The subscription that holds the entries."""
_ERASED: Final = "tg-erased"
"""The property of the entry that hides all before it: the broker deletes the topic only after a minute or two."""


def append(client: pulsar.Client, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
    """Append one entry.

    Raises:
        BusError: the broker did not answer in time, or refused.
        TooLarge: the entry is over the broker's limit.
    """
    close_quietly(_hold(client, topic))
    producer = Producer.on(client, topic)
    try:
        with our_errors():
            producer.handle.send(body, dict(properties))
    finally:
        producer.close()


def read(client: pulsar.Client, topic: str) -> tuple[Entry, ...]:
    """All entries since the last erasure, without what `append` cannot have written. Raises BusError as `append`."""
    entries: list[Entry] = []
    with our_errors():
        reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=1)
        try:
            while reader.has_message_available():
                message = reader.read_next(OPERATION_TIMEOUT_SECONDS * 1000)
                properties = properties_of(message)
                if properties is not None and _ERASED in properties:
                    entries.clear()
                elif properties is not None:
                    entries.append(Entry(message.data(), properties))
        finally:
            close_quietly(reader)
    return tuple(entries)


def erase(client: pulsar.Client, topic: str) -> None:
    """Hide all entries, and let the broker delete them. Raises BusError as `append`."""
    append(client, topic, b"", {_ERASED: "1"})
    holder = _hold(client, topic)
    with our_errors():
        holder.unsubscribe()
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
