"""A broker that answers and refuses: a subscription that it has closed for good ends, with its reason."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import ClientSession

from tests.conformance.reading import take
from tests.pulsar_server import PulsarServer
from tg_base.bus import Bus, open_bus
from tg_base.bus.pulsar import silence
from tg_base.protocol import Subscriptions
from tg_schema.errors import BusError
from tg_serve.launcher import inspect
from tg_serve.options import ServeOptions

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]


class Namespace:
    """A namespace that an operator takes away, and gives back.

    Attributes:
        topic: one in it.
    """

    def __init__(self, server: PulsarServer, http: ClientSession) -> None:
        name = f"tg/{uuid4().hex}"
        self.topic = f"persistent://{name}/x"
        self._url = f"{server.admin_url}/admin/v2/namespaces/{name}"
        self._http = http

    async def create(self) -> None:
        async with self._http.put(self._url, json={}) as answer:
            assert answer.status in {200, 204}, await answer.text()

    async def limit(self, policy: str, value: object) -> None:
        async with self._http.post(f"{self._url}/{policy}", json=value) as answer:
            assert answer.status in {200, 204}, await answer.text()

    async def terminate(self, topic: str) -> None:
        url = self._url.replace("/namespaces/", "/persistent/")
        async with self._http.post(f"{url}/{topic}/terminate") as answer:
            assert answer.status == 200, await answer.text()

    async def delete(self) -> None:
        """With all that is in it."""
        async with asyncio.timeout(120):
            while True:
                async with self._http.delete(self._url, params={"force": "true"}) as answer:
                    if answer.status in {200, 204, 404}:
                        return
                await asyncio.sleep(0.5)


@pytest.fixture
async def namespace(pulsar: PulsarServer) -> AsyncIterator[Namespace]:
    """One of the test's own."""
    async with ClientSession() as http:
        made = Namespace(pulsar, http)
        await made.create()
        yield made


@pytest.fixture
async def bus(pulsar: PulsarServer) -> AsyncIterator[Bus]:
    async with open_bus(pulsar.service_url) as bus:
        yield bus


@pytest.fixture
async def second(pulsar: PulsarServer) -> AsyncIterator[Bus]:
    """The bus of another process."""
    async with open_bus(pulsar.service_url) as bus:
        yield bus


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused subscription ends soon, not after ten seconds."""
    monkeypatch.setattr(silence, "REFUSAL_PAUSE_SECONDS", 1.0)


async def subscribe(bus: Bus, topic: str, group: str = "g") -> None:
    """And leave."""
    async with bus.subscribe(topic, group):
        pass


async def read_on(bus: Bus, topic: str, reading: asyncio.Event) -> None:
    """Read one message, and wait for the next."""
    async with bus.subscribe(topic, "g", prefetch=0) as deliveries:
        await bus.publish(topic, b"0", {})
        assert await take(deliveries, 1) == [b"0"]
        reading.set()
        await anext(deliveries)


async def test_a_subscription_whose_namespace_is_gone_ends_with_an_error(bus: Bus, namespace: Namespace) -> None:
    reading = asyncio.Event()
    task = asyncio.create_task(read_on(bus, namespace.topic, reading))
    async with asyncio.timeout(60):
        await reading.wait()
    await namespace.delete()
    async with asyncio.timeout(120):
        with pytest.raises(BusError):
            await task


async def test_what_reads_hears_again_when_its_namespace_is_back(bus: Bus, namespace: Namespace) -> None:
    async with (
        Subscriptions(bus, give_up=600) as subscriptions,
        subscriptions.open(namespace.topic, "g", prefetch=0) as deliveries,
    ):
        waiting = asyncio.ensure_future(anext(deliveries))
        await namespace.delete()
        async with asyncio.timeout(120):
            while not subscriptions.failed:  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.1)
        await namespace.create()
        async with asyncio.timeout(120):
            while subscriptions.failed:  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.1)
            await bus.publish(namespace.topic, b"again", {})
            assert (await waiting).body == b"again"


@pytest.mark.parametrize(
    "policy",
    ["maxConsumersPerTopic", "maxConsumersPerSubscription", "maxSubscriptionsPerTopic", "maxTopicsPerNamespace"],
)
async def test_a_limit_of_the_broker_is_named(bus: Bus, namespace: Namespace, policy: str) -> None:
    await namespace.limit(policy, 1)
    topic, group = namespace.topic, "g"
    async with bus.subscribe(topic, group):
        if policy == "maxTopicsPerNamespace":
            topic += "y"
        if policy == "maxSubscriptionsPerTopic":
            group += "y"
        with pytest.raises(BusError, match=f"an operator must raise .*{policy}"):
            await subscribe(bus, topic, group)


async def test_a_limit_of_producers_is_named(bus: Bus, second: Bus, namespace: Namespace) -> None:
    await namespace.limit("maxProducersPerTopic", 1)
    await bus.publish(namespace.topic, b"", {})
    with pytest.raises(BusError, match=r"an operator must raise maxProducersPerTopic"):
        await second.publish(namespace.topic, b"", {})


@pytest.mark.parametrize(
    ("policy", "value", "words"),
    [
        ("autoTopicCreation", {"allowAutoTopicCreation": False}, "allowAutoTopicCreation"),
        ("encryptionRequired", True, r"an operator must allow others \(encryptionRequired\)"),
        ("subscriptionTypesEnabled", ["Exclusive"], "or allow shared subscriptions"),
        (
            "autoSubscriptionCreation",
            {"allowAutoSubscriptionCreation": False},
            r"allowAutoSubscriptionCreation.* an operator must allow that",
        ),
    ],
)
async def test_what_a_namespace_does_not_take_is_named(
    bus: Bus, namespace: Namespace, policy: str, value: object, words: str
) -> None:
    await namespace.limit(policy, value)
    with pytest.raises(BusError, match=words):
        await (subscribe(bus, namespace.topic) if "ubscription" in policy else bus.publish(namespace.topic, b"", {}))


async def test_a_topic_that_was_terminated_says_what_to_do(bus: Bus, namespace: Namespace) -> None:
    await bus.publish(namespace.topic, b"", {})
    await namespace.terminate("x")
    for _ in range(2):
        # The first ends what was open, the second opens anew.
        with pytest.raises(BusError, match=r"was terminated .* an operator must delete it"):
            await bus.publish(namespace.topic, b"", {})


@pytest.mark.parametrize("policy", ["producer_exception", "producer_request_hold"])
async def test_a_full_backlog_is_named(bus: Bus, second: Bus, namespace: Namespace, policy: str) -> None:
    await namespace.limit("backlogQuota", {"limitSize": 100, "limitTime": -1, "policy": policy})
    await subscribe(bus, namespace.topic)
    await bus.publish(namespace.topic, bytes(1_000), {})
    with pytest.raises(BusError, match=r"backlog is full; .* an operator must raise its quota or add processors"):
        await second.publish(namespace.topic, b"", {})


async def test_a_check_finds_that_the_namespace_is_missing(pulsar: PulsarServer, tmp_path: Path) -> None:
    """A start would end with it; and the check makes nothing that a second one would find."""
    file = tmp_path / "tokengrid.toml"
    text = '[bus]\nurl = "URL"\nnamespace = "tg/NAME"\n[models.m]\nprovider = "llama-cpp"\n'
    text += '[flows.default]\ntext-completion = { model = "m" }\n'
    missing = "no such topic or namespace; an operator must create the namespace, and allow topics to be created in it "
    missing += f"(allowAutoTopicCreation) (namespace tg/missing of {pulsar.service_url})"
    for name, findings in {"missing": [missing], "flow": []}.items():
        file.write_text(text.replace("URL", pulsar.service_url).replace("NAME", name), "utf-8")
        _, found = await inspect(ServeOptions(file=file))
        assert [each.partition("the broker has ")[2] for each in found] == findings
    async with ClientSession() as http, http.get(f"{pulsar.admin_url}/admin/v2/namespaces/tg/missing") as answer:
        assert answer.status == 404
