"""Broker -> size limit of a message: found by sending, because the client does not expose what the broker reports."""

from collections.abc import Callable
from uuid import uuid4

import pulsar

from tg_base.bus.core import MAX_MESSAGE_BYTES
from tg_base.bus.pulsar.client import our_errors
from tg_base.bus.pulsar.sender import open_producer

PROPERTIES_BYTES = 16 * 1024
"""Bytes reserved for a message's properties and framing."""
ROUNDING_BYTES = 1024
"""Precision with which a limit below the default is found."""


def ask_limit(client: pulsar.Client, topic: str) -> int:
    """Bytes of body that the client's broker accepts; blocks.

    Sends to a non-persistent topic without readers, in the namespace of `topic`. A message above the limit never leaves
    the client. A broker with the default limit gets one message.

    Raises:
        BusError: the broker did not answer in time, or does not allow us to send there.
    """
    place, _, _ = topic.partition("://")[2].rpartition("/")
    producer = open_producer(client, f"non-persistent://{place}/tg-limit-{uuid4().hex}")
    # The default is tried first: nearly every broker has it, and then one message is all that is sent.
    if _takes(producer, MAX_MESSAGE_BYTES):
        return MAX_MESSAGE_BYTES
    largest = largest_taken(lambda size: _takes(producer, size))
    return max(largest - PROPERTIES_BYTES, largest // 2)


def _takes(producer: pulsar.Producer, size: int) -> bool:
    with our_errors():
        try:
            producer.send(bytes(size))
        except pulsar.MessageTooBig:
            return False
    return True


def largest_taken(takes: Callable[[int], bool]) -> int:
    """The largest accepted size below the default, rounded down to `ROUNDING_BYTES`."""
    low, high = 0, MAX_MESSAGE_BYTES
    while high - low > ROUNDING_BYTES:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) else (low, middle)
    return low
