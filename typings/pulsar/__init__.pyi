"""Types of what this project uses of pulsar-client, which has none: `tests/unit/test_typings.py` holds them to it."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import _pulsar
from _pulsar import AlreadyClosed as AlreadyClosed
from _pulsar import AuthorizationError as AuthorizationError
from _pulsar import ConsumerType as ConsumerType
from _pulsar import InitialPosition as InitialPosition
from _pulsar import LoggerLevel as LoggerLevel
from _pulsar import MessageTooBig as MessageTooBig
from _pulsar import PulsarException as PulsarException
from _pulsar import Result as Result
from _pulsar import Timeout as Timeout
from _pulsar import TopicNotFound as TopicNotFound
from pulsar.schema import Schema

class MessageId:
    earliest: ClassVar[_pulsar.MessageId]
    latest: ClassVar[_pulsar.MessageId]
    def __init__(self, partition: int = -1, ledger_id: int = -1, entry_id: int = -1, batch_index: int = -1) -> None: ...
    def ledger_id(self) -> int: ...
    def entry_id(self) -> int: ...

class Message:
    def data(self) -> bytes: ...
    def value(self) -> Any: ...
    def properties(self) -> dict[str, str]: ...
    def publish_timestamp(self) -> int: ...
    def message_id(self) -> _pulsar.MessageId: ...
    def redelivery_count(self) -> int: ...

class Authentication: ...

class AuthenticationToken(Authentication):
    def __init__(self, token: str | Callable[[], str]) -> None: ...

class FileLogger:
    def __init__(self, log_level: LoggerLevel, log_file: str) -> None: ...

class Client:
    def __init__(
        self,
        service_url: str,
        *,
        authentication: Authentication | None = None,
        operation_timeout_seconds: int = 30,
        stats_interval_in_seconds: int = 600,
        tls_trust_certs_file_path: str | None = None,
        tls_validate_hostname: bool = False,
        logger: FileLogger | None = None,
        connection_timeout_ms: int = 10_000,
        listener_name: str | None = None,
    ) -> None: ...
    def create_producer(
        self,
        topic: str,
        *,
        schema: Schema = ...,
        send_timeout_millis: int = 30_000,
        max_pending_messages: int = 1000,
        max_pending_messages_across_partitions: int = 50_000,
        batching_enabled: bool = False,
        batching_max_publish_delay_ms: int = 10,
    ) -> Producer: ...
    def subscribe(
        self,
        topic: str,
        subscription_name: str,
        consumer_type: ConsumerType = ...,
        *,
        schema: Schema = ...,
        receiver_queue_size: int = 1000,
        negative_ack_redelivery_delay_ms: int = 60_000,
        initial_position: InitialPosition = ...,
    ) -> Consumer: ...
    def create_reader(
        self,
        topic: str,
        start_message_id: _pulsar.MessageId | MessageId,
        *,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
    ) -> Reader: ...
    def get_topic_partitions(self, topic: str) -> list[str]: ...
    def close(self) -> None: ...

class Producer:
    _producer: _pulsar.Producer
    def send(self, content: Any, properties: Mapping[str, str] | None = None) -> _pulsar.MessageId: ...
    def send_async(
        self,
        content: Any,
        callback: Callable[[Result, _pulsar.MessageId], object],
        properties: dict[str, str] | None = None,
    ) -> None: ...
    def is_connected(self) -> bool: ...
    def close(self) -> None: ...

class Consumer:
    _consumer: _pulsar.Consumer
    def receive(self, timeout_millis: int | None = None) -> Message: ...
    def acknowledge(self, message: Message | _pulsar.MessageId) -> None: ...
    def negative_acknowledge(self, message: Message | _pulsar.MessageId) -> None: ...
    def is_connected(self) -> bool: ...
    def unsubscribe(self) -> None: ...
    def close(self) -> None: ...

class Reader:
    _reader: _pulsar.Reader
    def has_message_available(self) -> bool: ...
    def read_next(self, timeout_millis: int | None = None) -> Message: ...
    def is_connected(self) -> bool: ...
    def close(self) -> None: ...
