"""The client in use, and the former ones on which something is still open."""

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

PROBE_TIMEOUT_SECONDS = 2
"""How long a broker is asked whether it is back; the client's pauses within it stay below a second."""
MAX_CONCURRENT_CALLS = 4
"""Subscriptions that are opened anew at once."""


class Clients:
    """All clients of one broker. Any thread may use it.

    Args:
        broker: whose.

    Attributes:
        current: where everything new is opened.
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
        """Open a new client, and these subscriptions on it, where the broker answers; blocks.

        Returns:
            What became of each that was not connected, None = it is open; or None where the broker does not answer.
        """
        if not self._answers() or not self._renew():
            return None
        silent = [consumer for consumer in consumers if not consumer.connected]
        with ThreadPoolExecutor(MAX_CONCURRENT_CALLS, thread_name_prefix="bus-reopen") as pool:
            return dict(zip(silent, pool.map(self._reopen, silent), strict=True))

    def ask_limit(self, topic: str) -> int:
        """As `message_limit.ask_limit`, on a client of its own: what is sent holds up nothing else; blocks."""
        with self._for_a_while(OPERATION_TIMEOUT_SECONDS) as client:
            return ask_limit(client, topic)

    def take_unused(self, in_use: list[pulsar.Client]) -> list[pulsar.Client]:
        """Take out the former clients on which nothing is open, or being opened; the caller closes them."""
        until = time.monotonic() - 2 * CALL_TIMEOUT_SECONDS
        used = {id(client) for client in in_use}
        with self._changing:
            unused = [(at, client) for at, client in self._former if at < until and id(client) not in used]
            self._former = [former for former in self._former if former not in unused]
        return [client for _, client in unused]

    def close(self) -> None:
        """Close all but those that are open for a while; blocks.

        One that is closed while it opens a producer never returns from that. It ends by itself, after its own timeout.
        """
        with self._changing:
            self._closed = True
            clients = [*(client for _, client in self._former), self.current]
            self._former.clear()
        for client in clients:
            close_quietly(client)

    def _answers(self) -> bool:
        if not self._broker.reachable(PROBE_TIMEOUT_SECONDS):
            return False
        # A client of its own: those that have failed for long pause before they try again, whatever they are asked.
        try:
            with self._for_a_while(PROBE_TIMEOUT_SECONDS) as probe:
                look_up(probe)
        except TgError:
            return False
        return True

    @contextmanager
    def _for_a_while(self, timeout: int) -> Iterator[pulsar.Client]:
        """A client of its own."""
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
