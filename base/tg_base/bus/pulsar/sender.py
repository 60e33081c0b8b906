"""Publisher -> one topic's producer, from the first publish until it is idle."""

import asyncio
from typing import NamedTuple

import pulsar

from tg_base.bus.core import SendWindow
from tg_base.bus.pulsar.client import (
    CALL_TIMEOUT_SECONDS,
    OPERATION_TIMEOUT_SECONDS,
    error_of,
    our_errors,
)

MAX_IN_FLIGHT_MESSAGES = 1_000
MAX_IN_FLIGHT_BYTES = 32 * 1024 * 1024


def open_producer(client: pulsar.Client, topic: str) -> pulsar.Producer:
    """Open a producer; blocks.

    Raises:
        BusError: the broker did not answer in time, or refused.
    """
    # Without batching: the links join chunks already, and a batch would only add its delay. The window is enforced
    # here, too: the client's queue is one larger, so that it accepts everything the window admits.
    with our_errors("produce"):
        return client.create_producer(
            topic,
            send_timeout_millis=OPERATION_TIMEOUT_SECONDS * 1000,
            max_pending_messages=MAX_IN_FLIGHT_MESSAGES + 1,
            max_pending_messages_across_partitions=0,
            batching_enabled=False,
        )


class Sender:
    """One topic's producer and its send window. Belongs to one event loop.

    Attributes:
        window: the messages in flight.
        producer: None until it is open.
        used: loop time of its last use.
    """

    def __init__(self, opening: "asyncio.Future[pulsar.Producer]", now: float) -> None:
        self._opening = opening
        self.window = SendWindow(MAX_IN_FLIGHT_MESSAGES, MAX_IN_FLIGHT_BYTES)
        self.producer: pulsar.Producer | None = None
        self.used = now

    @property
    def silent(self) -> bool:
        """Whether it is open but not connected."""
        return self.producer is not None and not self.producer.is_connected()

    async def enter_in_turn(self, size: int) -> pulsar.Producer:
        """Wait for the producer and for room in the window, and enter it.

        Raises:
            BusError: it took too long, or the producer could not be opened.
        """
        try:
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                self.producer = await asyncio.shield(self._opening)
                await self.window.enter_in_turn(size)
        except TimeoutError:
            raise error_of("Timeout") from None
        return self.producer


class Sent(NamedTuple):
    """The outcome of one send."""

    sender: Sender
    size: int
    sent: "asyncio.Future[None]"
    result: pulsar.Result
