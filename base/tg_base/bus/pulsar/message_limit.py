"""Broker -> how large a message may be: asked for by sending, since the client keeps to itself what the broker says."""

from collections.abc import Callable
from uuid import uuid4

import pulsar

from tg_base.bus.core import MAX_MESSAGE_BYTES
from tg_base.bus.pulsar.client import our_errors
from tg_base.bus.pulsar.sender import Producer

PROPERTIES_BYTES = 16 * 1024
"""Room that is kept for a message's properties and framing."""
ROUNDING_BYTES = 1024
"""How exactly a limit below the usual one is found."""


def ask_limit(client: pulsar.Client, topic: str) -> int:
    """Bytes of body that the client's broker takes; blocks.

    Sends to a topic in the namespace of `topic` that does not persist and that nobody reads. What is above the limit
    never leaves the client; a broker with the usual limit is sent one message.

    Raises:
        BusError: the broker did not answer in time, or does not let us send there.
    """
    place, _, _ = topic.partition("://")[2].rpartition("/")
    producer = Producer.on(client, f"non-persistent://{place}/tg-limit-{uuid4().hex}")
    if _takes(producer, MAX_MESSAGE_BYTES):
        return MAX_MESSAGE_BYTES
    largest = largest_taken(lambda size: _takes(producer, size))
    return max(largest - PROPERTIES_BYTES, largest // 2)


def _takes(producer: Producer, size: int) -> bool:
    with our_errors():
        try:
            producer.handle.send(bytes(size))
        except pulsar.MessageTooBig:
            return False
    return True


def largest_taken(takes: Callable[[int], bool]) -> int:
    """The largest size below the usual one that is taken, from below."""
    low, high = 0, MAX_MESSAGE_BYTES
    while high - low > ROUNDING_BYTES:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) else (low, middle)
    return low
