"""Options -> a client of the broker, and its errors in our own words."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Literal, Protocol, TypeVar
from urllib.parse import urlsplit

import pulsar

from tg_base.bus.core import BusOptions
from tg_base.bus.pulsar.client_log import client_log
from tg_base.bus.pulsar.handshake import Refusal, shake_hands
from tg_base.bus.pulsar.wire import producer_command, subscribe_command
from tg_schema.errors import BadRequest, BusError, TooLarge

OPERATION_TIMEOUT_SECONDS = 5
"""Timeout of opening, closing and looking up, and of a send until the broker has accepted it."""
EXPLAIN_TIMEOUT_SECONDS = 0.5
"""Timeout of a connection that is opened only to find out why a call has failed."""
CALL_TIMEOUT_SECONDS = 8.0
"""Timeout of a call, its wait for a free thread included; of a publish, the time until its send begins."""

T = TypeVar("T")
Action = Literal["produce", "consume"]
"""The actions that the broker permits to a role on a topic or namespace."""

_NO_BROKER = "this names no broker: write pulsar://host:port or pulsar+ssl://host:port"
_FULL = "the topic's backlog is full; try again later, or an operator must raise its quota or add processors"
_SENTENCES = {
    "AlreadyClosed": "the bus is closed",
    "Timeout": "the broker did not answer in time; try again, and check that it is running, accepts our token and "
    "allows another connection (brokerMaxConnections, brokerMaxConnectionsPerIp)",
    "ConnectError": "the broker cannot be reached; try again",
    "NotConnected": "the connection to the broker is lost; try again",
    "AuthenticationError": "the broker rejects our token; an operator must configure a valid one",
    "AuthorizationError": "the broker denies us this topic; an operator must grant our role access to it",
    "TopicNotFound": "the broker has no such topic or namespace; an operator must create the namespace, and allow "
    "topics to be created in it (allowAutoTopicCreation)",
    "TopicTerminated": "the topic was terminated and takes no more messages; an operator must delete it; it is then "
    "created anew",
    "ConsumerBusy": "the broker allows no further reader of this topic; an operator must raise maxConsumersPerTopic "
    "or maxConsumersPerSubscription, or stop an exclusive reader",
    "ProducerBusy": "the broker allows no further writer to this topic; an operator must raise maxProducersPerTopic",
    "NotAllowedError": "the broker allows no further topic or subscription here; an operator must raise "
    "maxTopicsPerNamespace or maxSubscriptionsPerTopic, or allow shared subscriptions (subscriptionTypesEnabled)",
    "TooManyLookupRequestException": "the broker is asked for too many topics at once (maxConcurrentLookupRequest); "
    "try again",
    "ProducerBlockedQuotaExceededError": _FULL,
    "ProducerBlockedQuotaExceededException": _FULL,
}


class Broker:
    """Opens clients of one broker. Any thread may use it.

    Args:
        url: the broker's URL.
        options: how to connect.

    Raises:
        BadRequest: the URL names no broker, or a secret or file that the options name is missing.
    """

    def __init__(self, url: str, options: BusOptions) -> None:
        named = options.token_env is not None or options.token_file is not None
        if options.trust_certs is not None and not options.trust_certs.is_file():
            raise BadRequest(
                f"the file {options.trust_certs} does not exist; it must hold the broker's certificate authorities"
            )
        self._url = url
        try:
            parts = urlsplit(url)
            self._tls = parts.scheme == "pulsar+ssl"
            self._place = (parts.hostname or "", parts.port or (6651 if self._tls else 6650))
        except ValueError:
            raise BadRequest(_NO_BROKER).at("url") from None
        if parts.scheme not in {"pulsar", "pulsar+ssl"} or not parts.hostname:
            raise BadRequest(_NO_BROKER).at("url")
        self._address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._options = options
        self._token = _TokenFile(options) if named else None

    def client(self) -> pulsar.Client:
        """A client that connects at its first use."""
        certificates = self._options.trust_certs
        return pulsar.Client(
            self._url,
            authentication=None if self._token is None else pulsar.AuthenticationToken(self._token),
            operation_timeout_seconds=OPERATION_TIMEOUT_SECONDS,
            connection_timeout_ms=OPERATION_TIMEOUT_SECONDS * 1000,
            stats_interval_in_seconds=0,
            tls_trust_certs_file_path=None if certificates is None else str(certificates),
            tls_validate_hostname=True,
            listener_name=self._options.listener_name,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, client_log().path),
        )

    def connect_failure(self, timeout: float) -> str | None:
        """Why no connection to the broker can be opened, in the operating system's words; None if one can. Blocks."""
        # A plain socket: the client would log every attempt that fails.
        try:
            socket.create_connection(self._place, timeout).close()
        except OSError as error:
            return error.strerror or "no answer"
        return None

    def check(self, timeout: float) -> int | None:
        """Connect once, and return how many bytes a message may have; None = the broker does not answer. Blocks.

        Args:
            timeout: seconds for each of connecting, the handshake of TLS, and the broker's reply.

        Raises:
            BusError: the broker refuses us for a reason that no retry can change; the message has its address and says
                what to do.
        """
        answer = self._shake_hands(timeout)
        if not isinstance(answer, Refusal):
            return answer
        if answer.lasting:
            raise BusError(f"{answer.sentence} ({self._address})")
        return None

    def explain(self, error: BusError, topic: str | None = None, group: str | None = None) -> BusError:
        """The same error for an operator: with the topic's namespace, the broker's address, and why we cannot connect.

        Blocks.

        Args:
            error: the error of a call that failed.
            topic: the topic that could not be opened.
            group: the subscription, if there is one.
        """
        failure = self.connect_failure(EXPLAIN_TIMEOUT_SECONDS)
        if failure is not None:
            return BusError(f"no broker answers at {self._address}: {failure}; start it, or correct the URL of the bus")
        opening = subscribe_command(topic, group) if topic is not None and group is not None else None
        refusal = self._shake_hands(EXPLAIN_TIMEOUT_SECONDS, opening)
        if isinstance(refusal, Refusal):
            return BusError(f"{refusal.sentence} ({self._address})")
        where = "" if topic is None else f"namespace {topic.partition('://')[2].rpartition('/')[0]} of "
        return BusError(f"{error.message} ({where}{self._address})")

    def explain_producer(self, error: BusError, topic: str) -> BusError:
        """Replace the timeout of a producer's opening by the broker's own reason, which the client hides; blocks.

        Clients of a gateway read it, so it has no address.
        """
        if error.message != _SENTENCES["Timeout"]:
            return error
        refusal = self._shake_hands(EXPLAIN_TIMEOUT_SECONDS, producer_command(topic))
        return BusError(refusal.sentence) if isinstance(refusal, Refusal) else error

    def _shake_hands(self, timeout: float, opening: bytes | None = None) -> Refusal | int | None:
        host, port = self._place
        token = None if self._token is None else self._token()
        return shake_hands(
            host,
            port,
            token,
            tls=self._tls,
            authorities=self._options.trust_certs,
            timeout=timeout,
            opening=opening,
        )


def look_up(client: pulsar.Client, topic: str | None = None) -> None:
    """Return once the broker has answered, for this topic if one is given.

    Raises:
        BusError: it did not answer in time, or refuses the topic.
    """
    with our_errors():
        if topic is not None:
            client.get_topic_partitions(topic)
            return
        # A broker that denies us this topic has answered too.
        with contextlib.suppress(pulsar.AuthorizationError, pulsar.TopicNotFound):
            client.get_topic_partitions("non-persistent://tg/notify/ping")


def error_of(kind: str, action: Action | None = None) -> BusError | TooLarge:
    """Our error for a kind of the client's error. The client's own text is dropped, since it may hold a secret.

    Args:
        kind: the name of the client's class or result.
        action: what was tried on the topic, if that is known.
    """
    if kind == "MessageTooBig":
        return TooLarge("the message with its properties is over the broker's limit; send less")
    if kind == "AuthorizationError" and action is not None:
        return BusError(f"the broker denies us this topic; an operator must grant our role the action {action} on it")
    return BusError(_SENTENCES.get(kind) or f"the broker answered with {kind}; try again")


@contextlib.contextmanager
def our_errors(action: Action | None = None) -> Iterator[None]:
    """Raise our errors in place of the client's; `action` as in `error_of`."""
    try:
        yield
    except pulsar.PulsarException as failure:
        raise error_of(type(failure).__name__, action) from None


async def in_time(future: "asyncio.Future[T]") -> T:
    """The result of a call in a thread; the call continues if the caller is cancelled.

    Raises:
        BusError: it took longer than `CALL_TIMEOUT_SECONDS`.
    """
    future.add_done_callback(_retrieve)
    try:
        # Do not use `wait_for`: in Python 3.11 it swallows a cancellation that comes together with the result.
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            return await asyncio.shield(future)
    except TimeoutError:
        raise error_of("Timeout") from None


def _retrieve(future: "asyncio.Future[T]") -> None:
    """Mark a late failure as seen: asyncio would otherwise log it with a traceback."""
    if not future.cancelled():
        future.exception()


class Closable(Protocol):
    """A producer, consumer, reader or client."""

    def close(self) -> None:
        """Close it; blocks."""


def close_quietly(handle: Closable) -> None:
    """Close it; one that is closed or unreachable already counts as closed."""
    with contextlib.suppress(pulsar.PulsarException):
        handle.close()


class _TokenFile:
    """Supplies the token at every connect; if it cannot be read, the last one stays in use."""

    def __init__(self, options: BusOptions) -> None:
        self._options = options
        self._last = options.token()

    def __call__(self) -> str:
        with contextlib.suppress(BadRequest):
            self._last = self._options.token()
        return self._last or ""
