"""Broker -> clients: the current client, and former ones on which something is still open."""

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pulsar

from tg_base.bus.pulsar.client import (
    CALL_TIMEOUT_SECONDS,
    OPERATION_TIMEOUT_SECONDS,
    Broker,
    close_quietly,
    error_of,
    look_up,
)
from tg_base.bus.pulsar.consumer import Consumer
from tg_base.bus.pulsar.message_limit import ask_limit
from tg_schema import TgError
from tg_schema.errors import BusError

PROBE_TIMEOUT_SECONDS = 2
"""Timeout of a probe whether the broker is back; within it the client's retry pauses stay below a second."""
MAX_CONCURRENT_CALLS = 4
"""Subscriptions that are reopened concurrently."""


class Clients:
    """All clients of one broker. Any thread may use it.

    Args:
        broker: opens the clients.

    Attributes:
        current: the client for everything that is opened from now on.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._former: list[tuple[float, pulsar.Client]] = []
        self._changing = threading.Lock()
        self._closed = False
        self.current = broker.client()

    @property
    def all_in_use(self) -> bool:
        """Whether there is no former one."""
        return not self._former

    def reopen_all(self, consumers: Iterable[Consumer]) -> dict[Consumer, TgError | None] | None:
        """Open a new client, and these subscriptions on it, if the broker answers; blocks.

        Returns:
            The error of each that was not connected, None = it is open; or None if the broker does not answer.
        """
        if not self._answers() or not self._renew():
            return None
        silent = [consumer for consumer in consumers if not consumer.connected]
        with ThreadPoolExecutor(MAX_CONCURRENT_CALLS, thread_name_prefix="bus-reopen") as pool:
            return dict(zip(silent, pool.map(self._reopen, silent), strict=True))

    def subscribe(self, topic: str, group: str | None, queue: int, after: "pulsar.MessageId | None" = None) -> Consumer:
        """Open a subscription; blocks.

        Raises:
            BusError: as `Consumer`, with the broker's address.
        """
        try:
            return Consumer(self.current, topic, group, queue, after)
        except BusError as error:
            raise self._broker.explain(error) from None

    def ping(self) -> None:
        """Return once the broker has answered; blocks.

        Raises:
            BusError: it did not answer in time; with the broker's address.
        """
        try:
            look_up(self.current)
        except BusError as error:
            raise self._broker.explain(error) from None

    def ask_limit(self, topic: str) -> int:
        """As `message_limit.ask_limit`, on a separate client, so that it delays nothing else; blocks."""
        with self._for_a_while(OPERATION_TIMEOUT_SECONDS) as client:
            return ask_limit(client, topic)

    def take_unused(self, in_use: list[pulsar.Client]) -> list[pulsar.Client]:
        """Remove and return the former clients on which nothing is open or being opened; the caller closes them."""
        # A call that began on it may still be about to return a producer or consumer.
        until = time.monotonic() - 2 * CALL_TIMEOUT_SECONDS
        used = {id(client) for client in in_use}
        with self._changing:
            unused = [(at, client) for at, client in self._former if at < until and id(client) not in used]
            self._former = [former for former in self._former if former not in unused]
        return [client for _, client in unused]

    def close(self) -> None:
        """Close all clients but the temporary ones; blocks.

        A client that is closed while it opens a producer would never return from that. The temporary ones end by their
        own timeout.
        """
        with self._changing:
            self._closed = True
            clients = [*(client for _, client in self._former), self.current]
            self._former.clear()
        for client in clients:
            close_quietly(client)

    def _answers(self) -> bool:
        if self._broker.connect_failure(PROBE_TIMEOUT_SECONDS) is not None:
            return False
        # A new client: one that has failed for long pauses up to a minute before it tries again, whatever it is asked.
        try:
            with self._for_a_while(PROBE_TIMEOUT_SECONDS) as probe:
                look_up(probe)
        except TgError:
            return False
        return True

    @contextmanager
    def _for_a_while(self, timeout: int) -> Iterator[pulsar.Client]:
        """A temporary client."""
        with self._changing:
            if self._closed:
                raise error_of("AlreadyClosed")
            client = self._broker.client(timeout)
        try:
            yield client
        finally:
            close_quietly(client)

    def _renew(self) -> bool:
        client = self._broker.client()
        with self._changing:
            if not self._closed:
                self._former.append((time.monotonic(), self.current))
                self.current = client
                return True
        close_quietly(client)
        return False

    def _reopen(self, consumer: Consumer) -> TgError | None:
        try:
            consumer.reopen(self.current)
        except TgError as error:
            return error
        return None
