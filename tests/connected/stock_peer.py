"""A peer that speaks with the stock client and its JsonSchema, over the real broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pulsar
from pulsar.schema import JsonSchema

TIMEOUT = 20_000


class StockPeer:
    """Sends and receives records of the stock kind, blocking."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def send(self, topic: str, record: Any) -> None:
        """Publish one record, with its schema registered on the topic."""
        producer = self._client.create_producer(topic, schema=JsonSchema(type(record)))
        producer.send(record, properties={"id": "1"})
        producer.close()

    def subscribe(self, topic: str, kind: type[Any]) -> Any:
        """Begin to read records of this kind."""
        earliest = pulsar.InitialPosition.Earliest
        return self._client.subscribe(topic, uuid4().hex, schema=JsonSchema(kind), initial_position=earliest)

    @staticmethod
    def receive(consumer: Any) -> Any:
        """The next record, as the stock client decodes it."""
        return consumer.receive(timeout_millis=TIMEOUT).value()


@contextmanager
def stock_peer(url: str) -> Iterator[StockPeer]:
    """A peer for as long as the block lasts."""
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/stderr"))
    try:
        yield StockPeer(client)
    finally:
        client.close()
