"""Options -> a client of the broker, and its errors in words of ours."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import pulsar

from tg_base.bus.core import BusOptions
from tg_base.bus.pulsar.client_log import client_log
from tg_schema.errors import BadRequest, BusError, TooLarge

OPERATION_TIMEOUT_SECONDS = 5
"""Seconds for opening, closing and looking up, and for a send until the broker has it."""
CALL_TIMEOUT_SECONDS = 8.0
"""Seconds that a call waits for its turn and for the broker, before a send begins."""

T = TypeVar("T")

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


class Broker:
    """How clients of one broker are opened. Any thread may use it.

    Args:
        url: the broker's.
        options: how to reach it.

    Raises:
        BadRequest: a secret or file that the options name is not there.
    """

    def __init__(self, url: str, options: BusOptions) -> None:
        named = options.token_env is not None or options.token_file is not None
        if options.trust_certs is not None and not options.trust_certs.is_file():
            raise BadRequest(f"the file {options.trust_certs} should hold the broker's authorities; it is not there")
        self._url = url
        self._options = options
        self._token = _TokenFile(options) if named else None

    def client(self, timeout: int = OPERATION_TIMEOUT_SECONDS) -> pulsar.Client:
        """A client that connects when it is first used; each of its operations has `timeout` seconds."""
        certificates = self._options.trust_certs
        return pulsar.Client(
            self._url,
            authentication=None if self._token is None else pulsar.AuthenticationToken(self._token),
            operation_timeout_seconds=timeout,
            connection_timeout_ms=timeout * 1000,
            stats_interval_in_seconds=0,
            tls_trust_certs_file_path=None if certificates is None else str(certificates),
            tls_validate_hostname=True,
            listener_name=self._options.listener_name,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, client_log().path),
        )

    def reachable(self, timeout: float) -> bool:
        """Whether somebody listens there; blocks. The client would log every try that fails."""
        address = urlsplit(self._url)
        port = address.port or (6651 if address.scheme == "pulsar+ssl" else 6650)
        try:
            socket.create_connection((address.hostname, port), timeout).close()
        except OSError:
            return False
        return True


def look_up(client: pulsar.Client) -> None:
    """Return once the broker has answered.

    Raises:
        BusError: it did not, in time.
    """
    # Authorization refuses a topic that is not ours to see, and that is an answer too.
    with our_errors(), contextlib.suppress(pulsar.AuthorizationError, pulsar.TopicNotFound):
        client.get_topic_partitions("non-persistent://tg/notify/ping")


def error_of(kind: str) -> BusError | TooLarge:
    """Our error for a kind of the client's; the client's own words stay here."""
    if kind == "MessageTooBig":
        return TooLarge("the message with its properties is over the broker's limit; send less")
    return BusError(_SENTENCES.get(kind) or f"the broker refused ({kind}); try again")


@contextlib.contextmanager
def our_errors() -> Iterator[None]:
    """Raise ours in place of the client's."""
    try:
        yield
    except pulsar.PulsarException as failure:
        raise error_of(type(failure).__name__) from None


async def in_time(future: "asyncio.Future[T]") -> T:
    """What a thread makes of a call; the call itself goes on when the caller has left.

    Raises:
        BusError: it took longer than `CALL_TIMEOUT_SECONDS`.
    """
    future.add_done_callback(_retrieve)
    try:
        # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes together with the result.
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            return await asyncio.shield(future)
    except TimeoutError:
        raise error_of("Timeout") from None


def _retrieve(future: "asyncio.Future[T]") -> None:
    """A failure that comes when the caller has left would otherwise be reported with a traceback."""
    if not future.cancelled():
        future.exception()


class Closable(Protocol):
    """A producer, consumer, reader or client."""

    def close(self) -> None:
        """Close it; blocks."""


def close_quietly(handle: Closable) -> None:
    """Close it; what is closed or unreachable already is as good as closed."""
    with contextlib.suppress(pulsar.PulsarException):
        handle.close()


class _TokenFile:
    """Supplies the token whenever the client connects; one that can't be read leaves the last one in use."""

    def __init__(self, options: BusOptions) -> None:
        self._options = options
        self._last = options.token()

    def __call__(self) -> str:
        with contextlib.suppress(BadRequest):
            self._last = self._options.token()
        return self._last or ""
