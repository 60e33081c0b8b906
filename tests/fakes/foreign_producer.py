"""A producer in another language: the stock client's own builder, beneath the part of it that insists on text."""

from collections.abc import Mapping

import _pulsar
import pulsar


def send_foreign(url: str, topic: str, body: bytes, properties: Mapping[bytes, bytes]) -> None:
    """Publish one message whose properties are any bytes, as a Go or C++ producer can."""
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/stderr"))
    try:
        producer = client.create_producer(topic)
        message = _pulsar.MessageBuilder()
        message.content(body)
        for name, value in properties.items():
            message.property(name, value)
        producer._producer.send(message.build())
    finally:
        client.close()
