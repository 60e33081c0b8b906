"""However many subscriptions a bus has, its threads stay a few, and each subscription gets its messages."""

import threading
from contextlib import AsyncExitStack
from uuid import uuid4

import pytest

from tests.conformance.reading import take
from tests.pulsar_server import PulsarServer
from tg_base.bus import open_bus
from tg_base.bus.pulsar.pulsar_bus import MAX_CALLS, MAX_READER_THREADS

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

SUBSCRIPTIONS = [
    ("persistent", "g", 0),
    ("persistent", "g", 100),
    ("persistent", None, 100),
    ("non-persistent", None, 1),
]


async def test_many_subscriptions_take_few_threads(pulsar: PulsarServer) -> None:
    before = set(threading.enumerate())
    async with open_bus(pulsar.service_url) as bus, AsyncExitStack() as stack:
        readers = []
        for kind, group, prefetch in SUBSCRIPTIONS * 10:
            topic = f"{kind}://tg/flow/{uuid4().hex}"
            subscription = bus.subscribe(topic, group, prefetch=prefetch)
            readers.append((topic, await stack.enter_async_context(subscription)))
        for topic, deliveries in readers:
            await bus.publish(topic, topic.encode(), {})
            assert await take(deliveries, 1) == [topic.encode()]
        ours = [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("bus")]
        assert sum(name == "bus-reader" for name in ours) == MAX_READER_THREADS
        # Beside them, one asks for the broker's limit and one reads the client's log.
        assert len(ours) <= MAX_READER_THREADS + MAX_CALLS + 2
