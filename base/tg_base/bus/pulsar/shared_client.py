"""Broker -> client: the one client that a bus uses, and the reopening of the subscriptions that it has lost."""

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import inf
from time import monotonic

import pulsar
import structlog

from tg_base.bus.core import MAX_MESSAGE_BYTES
from tg_base.bus.pulsar import topic_log
from tg_base.bus.pulsar.client import (
    Broker,
    close_quietly,
    look_up,
)
from tg_base.bus.pulsar.consumer import Consumer
from tg_base.bus.pulsar.sender import open_producer
from tg_schema import TgError
from tg_schema.errors import BusError

log = structlog.get_logger()

PROPERTIES_BYTES = 16 * 1024
"""Bytes reserved for a message's properties and framing."""
CHECK_TIMEOUT_SECONDS = 1.0
"""Timeout of each step of the check before the first use."""
CHECK_PAUSE_SECONDS = 5.0
"""Seconds for which a check that got no answer is not repeated."""
PROBE_TIMEOUT_SECONDS = 2
"""Timeout of the connection that shows whether it makes sense to ask the broker anything."""
MAX_CONCURRENT_CALLS = 4
"""Subscriptions that are reopened concurrently."""


class SharedClient:
    """The client of one broker, for the life of a bus. Any thread may use it.

    While the broker is away, each subscription and producer retries with pauses that grow to a minute. Reopening one on
    the same client starts with short pauses again, so one client survives any number of outages.

    Args:
        broker: opens the client.

    Attributes:
        handle: the client.
        max_message: the bytes that the body of a message may have, as far as is known.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._checking = threading.Lock()
        self._check_after = 0.0
        self.max_message = MAX_MESSAGE_BYTES
        self.handle = broker.client()

    def reopen_all(self, consumers: Iterable[Consumer]) -> dict[Consumer, TgError | None] | None:
        """Reopen the subscriptions that are not connected, if the broker answers; blocks.

        Returns:
            The error of each subscription (None = it is open), or None for all if the broker does not answer.
        """
        if not self._answers():
            return None
        # The same broker may have come back with another limit.
        self._check_after = 0.0
        lost = list(consumers)
        with ThreadPoolExecutor(MAX_CONCURRENT_CALLS, thread_name_prefix="bus-reopen") as pool:
            return dict(zip(lost, pool.map(_reopen, lost), strict=True))

    def subscribe(self, topic: str, group: str | None, queue: int, after: "pulsar.MessageId | None" = None) -> Consumer:
        """Open a subscription; blocks.

        Raises:
            BusError: as `Consumer`, with the broker's address.
        """
        self._check()
        try:
            return Consumer(self.handle, topic, group, queue, after)
        except BusError as error:
            raise self._broker.explain(error, topic, group) from None

    def produce(self, topic: str) -> pulsar.Producer:
        """Open a producer; blocks.

        Raises:
            BusError: as `open_producer`.
        """
        self._check()
        try:
            return open_producer(self.handle, topic)
        except BusError as error:
            raise self._broker.explain_producer(error, topic) from None

    def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        """As `topic_log.append`; blocks."""
        try:
            return topic_log.append(self.handle, topic, body, properties)
        except BusError as error:
            raise self._broker.explain_producer(error, topic) from None

    def ping(self, topic: str | None = None, *, produce: bool = False) -> None:
        """Return once the broker has answered, for this topic if one is given; blocks. `produce`: as of the bus.

        Raises:
            BusError: it did not answer in time, or refuses the topic; with the broker's address.
        """
        self._check()
        try:
            look_up(self.handle, topic)
        except BusError as error:
            raise self._broker.explain(error, topic) from None
        if topic is not None and produce:
            close_quietly(self.produce(topic))

    def lower_limit(self, refused: int) -> None:
        """Learn from the size of a refused body, in bytes: a Pulsar proxy does not report the limit of its brokers."""
        if refused // 2 < self.max_message:
            self.max_message = refused // 2
            log.warning("bus.limit", max_message=self.max_message)

    def close(self) -> None:
        """Close the client; blocks."""
        close_quietly(self.handle)

    def _check(self) -> None:
        """Before the first use, learn the limit of messages, and raise errors that the client would retry in vain."""
        with self._checking:
            if monotonic() < self._check_after:
                return
            most = self._broker.check(CHECK_TIMEOUT_SECONDS)
            if most is None:
                # Without this pause, many openings would wait for a silent broker one after the other.
                self._check_after = monotonic() + CHECK_PAUSE_SECONDS
                return
            self._check_after = inf
            self.max_message = min(max(most - PROPERTIES_BYTES, most // 2), MAX_MESSAGE_BYTES)
            if self.max_message < MAX_MESSAGE_BYTES:
                log.warning("bus.limit", max_message=self.max_message)

    def _answers(self) -> bool:
        if self._broker.connect_failure(PROBE_TIMEOUT_SECONDS) is not None:
            return False
        # Ask through this client: a temporary one, closed while its connections fail, may leak threads and descriptors.
        try:
            look_up(self.handle)
        except TgError:
            return False
        return True


def _reopen(consumer: Consumer) -> TgError | None:
    try:
        # This may run late. If the consumer is connected again, reopening it would only redeliver what it holds.
        if not consumer.connected:
            consumer.reopen()
    except TgError as error:
        return error
    return None
