"""A message that no Python client can read, on each topic that the pipeline reads: poison, and nobody becomes deaf."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest
from aiohttp import ClientSession
from prometheus_client import REGISTRY

from tests.conformance.reading import take, take_one
from tests.connected.live_streams import asked
from tests.connected.pipeline import Pipeline
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.foreign_producer import send_foreign
from tests.fakes.live_openai import LiveOpenAi, told
from tests.fakes.typed_clients import LlmClient
from tests.flow.patient_timing import PatientTiming
from tests.pulsar_server import PulsarServer
from tg_base.bus import open_bus
from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, encode
from tg_schema.errors import BadRequest
from tg_schema.topics import Topics

pytestmark = pytest.mark.connected

OFTEN = PatientTiming(interval=0.5)
UNREADABLE = [{b"id": b"\xff\xfe"}, {b"\xc3\x28": b"x"}, {b"id": b"s", b"reply": b"\xed\xa0\x80", b"attempt": b"1"}]
REQUEST = encode(TextCompletionRequest(prompt="3"))


def poison(topic: str) -> float:
    """How many messages of this topic have been counted as poison."""
    return REGISTRY.get_sample_value("tg_poison_messages_total", {"topic": topic}) or 0.0


@pytest.mark.parametrize("kind", ["queue", "inbox", "control", "announce", "presence", "responses"])
async def test_a_poisoned_topic_makes_nobody_deaf(pulsar: PulsarServer, kind: str) -> None:
    topics, flow = Topics("tg/notify"), uuid4().hex
    route = Route(flow, TEXT_COMPLETION, topics.request(flow, "t"), topics.response(flow, "t"))
    async with (
        open_bus(pulsar.service_url) as bus,
        Processor(bus, topics, CountingLlm(), (route,), timing=OFTEN) as processor,
        Requestor(bus, topics, timing=OFTEN) as requestor,
    ):
        topic = {
            "queue": route.request,
            "inbox": requestor._inbox.topic,
            "control": topics.control(processor.name),
            "announce": topics.announce,
            "presence": topics.presence,
            "responses": route.response,
        }[kind]
        # What plain peers answer is read from the first request to them on.
        client = LlmClient(requestor, replace(route, plain=kind == "responses"))
        assert await client.request("", "3", timeout=30) == "0 1 2 "
        for properties in UNREADABLE:
            await asyncio.to_thread(send_foreign, pulsar.service_url, topic, REQUEST, properties)
            assert await client.request("", "3", timeout=30) == "0 1 2 "
        async with asyncio.timeout(30):
            while poison(topic) < len(UNREADABLE):  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.05)
        assert not requestor.has_failed_subscription


async def test_an_unreadable_request_is_acknowledged_and_kept_for_a_person(pulsar: PulsarServer) -> None:
    topics, flow = Topics("tg/notify"), uuid4().hex
    route = Route(flow, TEXT_COMPLETION, topics.request(flow, "t"), topics.response(flow, "t"))
    async with (
        open_bus(pulsar.service_url) as bus,
        bus.subscribe(topics.dead_letter(route.request), None) as dead_letters,
    ):
        async with Processor(bus, topics, CountingLlm(), (route,), timing=OFTEN) as processor:
            await asyncio.to_thread(send_foreign, pulsar.service_url, route.request, b"\x00who", {b"id": b"\xff"})
            buried = await take_one(dead_letters)
            assert (buried.body, "UTF-8" in buried.properties["reason"]) == (b"\x00who", True)
            assert processor.name
        await bus.publish(route.request, b"next", {})
        async with bus.subscribe(route.request, f"tg-{TEXT_COMPLETION.name}", prefetch=0) as requests:
            assert await take(requests, 1) == [b"next"]


@pytest.mark.parametrize("group", ["readers", None])
async def test_a_reader_gets_the_body_and_a_sentence(pulsar: PulsarServer, group: str | None) -> None:
    topic = f"persistent://tg/flow/{uuid4().hex}"
    async with open_bus(pulsar.service_url) as bus, bus.subscribe(topic, group) as deliveries:
        await asyncio.to_thread(send_foreign, pulsar.service_url, topic, b"body", {b"id": b"\xff"})
        delivery = await take_one(deliveries)
        assert delivery.body == b"body"
        with pytest.raises(BadRequest):
            _ = delivery.properties
        delivery.ack()
        await bus.publish(topic, b"after", {"id": "1"})
        assert await take(deliveries, 1) == [b"after"]


async def topics_of(server: PulsarServer, flow: str) -> list[str]:
    """Every topic that a gateway and a processor of this flow read, as the broker lists them."""
    found: set[str] = set()
    async with ClientSession() as http:
        for kind in ("persistent", "non-persistent"):
            async with http.get(f"{server.admin_url}/admin/v2/{kind}/public/default") as answer:
                found |= set(await answer.json())
    wanted = ("inbox", "control-host", "announce", "presence", f"{flow}")
    return sorted(topic for topic in found if any(word in topic for word in wanted) and "dead" not in topic)


@pytest.mark.timeout(300)
async def test_poison_on_every_topic_leaves_the_processes_at_work(
    pulsar: PulsarServer, line: Pipeline, live_model: LiveOpenAi
) -> None:
    live_model.finish.set()
    gateway = await line.start("gateway")
    await line.start("text-completion")
    told(await asked(gateway.url, line.flow, "before", 60), whole=True)
    poisoned = await topics_of(pulsar, line.flow)
    for word in ("inbox", "control-host", "announce", "presence", f"request-{line.flow}"):
        assert any(word in topic for topic in poisoned), poisoned
    for topic in poisoned:
        await asyncio.to_thread(send_foreign, pulsar.service_url, topic, REQUEST, UNREADABLE[0])
    told(await asked(gateway.url, line.flow, "after", 60), whole=True)
    second = await line.start("text-completion")
    told(await asked(gateway.url, line.flow, "after a new processor", 60), whole=True)
    assert second.alive
    async with ClientSession(gateway.url) as http, http.get("/ready") as response:
        assert response.status == 200
    assert all(part.alive for part in line.parts)
