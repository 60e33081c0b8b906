"""A broker that takes less than the usual 5 MiB: its limit is known, what is above it is refused, the rest travels."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.conformance.reading import take
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.stream_server import stream_server
from tests.fakes.typed_clients import LlmClient
from tests.pulsar_or_skip import pulsar_or_skip
from tests.pulsar_server import PulsarServer
from tg_base.bus import MAX_MESSAGE_BYTES, Bus, open_bus
from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION
from tg_schema.errors import TooLarge
from tg_schema.topics import Topics

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

LIMIT = 1024 * 1024


@pytest.fixture(scope="module")
def small() -> Iterator[PulsarServer]:
    """A broker with a limit of 1 MiB."""
    with pulsar_or_skip({"maxMessageSize": str(LIMIT)}) as server:
        yield server


async def until_known(bus: Bus) -> int:
    """The broker's limit, as soon as the bus has asked for it."""
    async with asyncio.timeout(60):
        while bus.max_message == MAX_MESSAGE_BYTES:  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.02)
    return bus.max_message


@pytest.mark.parametrize("opening", ["publish", "subscribe"])
async def test_the_limit_is_known_from_the_first_use_on(small: PulsarServer, opening: str) -> None:
    topic = f"non-persistent://tg/flow/{uuid4().hex}"
    async with open_bus(small.service_url) as bus:
        if opening == "publish":
            await bus.publish(topic, b"", {})
            assert LIMIT - 32 * 1024 < await until_known(bus) < LIMIT
        else:
            async with bus.subscribe(topic, None):
                assert LIMIT - 32 * 1024 < await until_known(bus) < LIMIT


@asynccontextmanager
async def silent_proxy(server: PulsarServer) -> AsyncIterator[str]:
    """The URL of a proxy that says nothing of the limit, as a Pulsar proxy; a client looks up its broker through it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(4)
        first += await reader.readexactly(struct.unpack(">I", first)[0])
        if b"tokengrid" in first:
            writer.write(struct.pack(">II", 14, 10) + b"\x08\x03\x1a\x06\x0a\x04none")
            return
        theirs, ours = await asyncio.open_connection("127.0.0.1", urlsplit(server.service_url).port)
        ours.write(first)
        try:
            await asyncio.gather(pass_on(reader, ours), pass_on(theirs, writer))
        finally:
            ours.close()

    async with stream_server(serve) as port:
        yield f"pulsar://127.0.0.1:{port}"


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while received := await reader.read(65536):
        writer.write(received)
        await writer.drain()
    writer.close()


async def test_behind_a_proxy_it_is_known_once_it_was_met(small: PulsarServer) -> None:
    topic = f"non-persistent://tg/flow/{uuid4().hex}"
    async with silent_proxy(small) as url, open_bus(url) as bus:
        await bus.publish(topic, b"", {})
        assert bus.max_message == MAX_MESSAGE_BYTES
        with pytest.raises(TooLarge):
            await bus.publish(topic, bytes(LIMIT + 1), {})
        assert bus.max_message == LIMIT // 2
        await bus.publish(topic, bytes(bus.max_message), {})


@pytest.mark.parametrize("kind", ["persistent", "non-persistent"])
@pytest.mark.parametrize("known", [True, False])
async def test_what_is_above_it_is_refused_and_the_topic_stays_usable(
    small: PulsarServer, kind: str, known: bool
) -> None:
    topic = f"{kind}://tg/flow/{uuid4().hex}"
    async with open_bus(small.service_url) as bus, bus.subscribe(topic, None) as deliveries:
        limit = await until_known(bus) if known else LIMIT - 16 * 1024
        properties = {"id": "x" * 1000, "reason": "\u20ac" * 3000}
        for _ in range(3):
            with pytest.raises(TooLarge):
                await bus.publish(topic, bytes(LIMIT + 1), properties)
            await bus.publish(topic, bytes(limit - 1024), properties)
            assert len((await take(deliveries, 1))[0]) == limit - 1024


async def test_a_message_with_too_much_in_its_properties_disturbs_nobody(small: PulsarServer) -> None:
    topic = f"persistent://tg/flow/{uuid4().hex}"
    async with open_bus(small.service_url) as bus, bus.subscribe(topic, None) as deliveries:
        with pytest.raises(TooLarge):
            await bus.publish(topic, b"", {"id": "x" * (2 * LIMIT)})
        await bus.publish(topic, b"after", {})
        assert await take(deliveries, 1) == [b"after"]


async def test_a_pipeline_works_on_it(small: PulsarServer) -> None:
    topics, flow = Topics("tg/flow"), uuid4().hex
    route = Route(flow, TEXT_COMPLETION, topics.request(flow, "t"), topics.response(flow, "t"))
    async with (
        open_bus(small.service_url) as bus,
        Processor(bus, topics, CountingLlm(), (route,)),
        Requestor(bus, topics) as requestor,
    ):
        client = LlmClient(requestor, route)
        assert await client.request("", "3", timeout=30) == "0 1 2 "
        # In parts.
        assert await client.request("x" * (LIMIT + 1), "3", timeout=30) == "0 1 2 "
        assert await client.request("", "3", timeout=30) == "0 1 2 "
