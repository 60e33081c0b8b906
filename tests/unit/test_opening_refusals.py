"""What a broker answers to what the client was refused, command by command, and what an operator then reads."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.fakes.stream_server import stream_server
from tg_base.bus import BusOptions
from tg_base.bus.pulsar.client import Broker, error_of
from tg_base.bus.pulsar.shared_client import SharedClient
from tg_schema.errors import BusError

CONNECTED = b"\x08\x03\x1a\x08\x0a\x06broker"
"""`BaseCommand` of PulsarApi.proto with type 3, and a `CommandConnected` with its server_version."""
SUCCESS = b"\x08\x0d\x6a\x02\x08\x01"
"""Type 13: `CommandSuccess` for request 1."""
TOPIC = "persistent://tg/flow/x"


def failure(code: int, text: bytes) -> bytes:
    """Type 14: `CommandError` for request 1."""
    error = bytes((8, 1, 16, code, 26, len(text))) + text
    return bytes((8, 14, 114, len(error))) + error


@asynccontextmanager
async def broker(reply: bytes) -> AsyncIterator[tuple[Broker, list[bytes]]]:
    """One that takes the client, and gives this reply to what it opens; and what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for command in (CONNECTED, reply):
            size = struct.unpack(">I", await reader.readexactly(4))[0]
            asked.append(await reader.readexactly(size))
            writer.write(struct.pack(">II", len(command) + 4, len(command)) + command)

    async with stream_server(serve) as port:
        yield Broker(f"pulsar://127.0.0.1:{port}", BusOptions()), asked


def timeout() -> BusError:
    """What the client tells."""
    error = error_of("Timeout")
    assert isinstance(error, BusError)
    return error


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (failure(12, b"Subscription does not exist"), "creates no subscriptions by itself"),
        (failure(2, b"ledger"), "cannot store anything"),
        (failure(1, b"Encryption is required in x"), "takes encrypted messages only"),
        (failure(1, b"another"), "did not answer in time"),
        (failure(6, b"not served here"), "did not answer in time"),
        (SUCCESS, "did not answer in time"),
        (b"", "did not answer in time"),
        (b"\xff" * 9, "did not answer in time"),
    ],
)
async def test_a_subscription_that_timed_out_says_what_the_broker_says(reply: bytes, sentence: str) -> None:
    async with broker(reply) as (client, asked):
        error = await asyncio.to_thread(client.explain, timeout(), TOPIC, "tg-group")
        assert sentence in error.message
        assert TOPIC.encode() in asked[-1]
        assert b"tg-group" in asked[-1]


async def test_a_producer_that_timed_out_says_what_the_broker_says() -> None:
    async with broker(failure(2, b"ledger")) as (client, asked):
        error = await asyncio.to_thread(client.explain_producer, timeout(), TOPIC)
        assert (
            error.message == "the broker cannot store anything; an operator must look after its bookies and their disks"
        )
        assert TOPIC.encode() in asked[-1]


async def test_a_broker_is_not_asked_where_its_client_has_told_why() -> None:
    busy = error_of("ProducerBusy")
    assert isinstance(busy, BusError)
    async with broker(failure(2, b"ledger")) as (client, asked):
        assert await asyncio.to_thread(client.explain_producer, busy, TOPIC) is busy
        assert not asked


async def test_a_broker_that_says_nothing_is_checked_once_for_many_openings() -> None:
    handshakes = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal handshakes
        asked = await reader.readexactly(struct.unpack(">I", await reader.readexactly(4))[0])
        # The client library connects too.
        handshakes += b"tokengrid" in asked
        await reader.read()

    async with stream_server(serve) as port:
        client = SharedClient(Broker(f"pulsar://127.0.0.1:{port}", BusOptions()))
        openings = [asyncio.to_thread(client.ping) for _ in range(4)]
        outcomes = await asyncio.gather(*openings, return_exceptions=True)
        await asyncio.to_thread(client.close)
    assert [type(outcome) for outcome in outcomes] == [BusError] * 4
    # Each error is explained by a handshake of its own.
    assert handshakes == 1 + 4
