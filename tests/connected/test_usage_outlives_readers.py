"""Records of usage over a real broker: while their reader is away nothing waits, and afterwards none is missing."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.connected.pipeline import Pipeline, pipeline
from tests.fakes.gated_openai import GatedOpenAi
from tests.pulsar_server import PulsarServer
from tg_base.bus import open_bus
from tg_schema import decode
from tg_schema.topics import Topics
from tg_schema.usage_record import UsageRecord

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

TOPIC = Topics().usage
ASKED = 5


async def read(line: Pipeline, count: int, *, keep: bool) -> list[UsageRecord]:
    """This pipeline's next records, by a reader of its own; it acknowledges them if it keeps them."""
    found: list[UsageRecord] = []
    async with asyncio.timeout(60), open_bus(line.bus) as bus, bus.subscribe(TOPIC, "usage") as deliveries:
        while len(found) < count:
            delivery = await anext(deliveries)
            records = [decode(UsageRecord, body) for body in delivery.body.split(b"\n")]
            ours = [record for record in records if record.flow == line.flow]
            found += ours
            if keep or not ours:
                delivery.ack()
    return found


async def test_no_record_is_lost_while_the_reader_is_away(pulsar: PulsarServer, tmp_path: Path) -> None:
    async with GatedOpenAi.listening() as provider, pipeline(provider.url, pulsar.service_url, tmp_path) as line:
        provider.gate.set()
        # Its first start: from now on the broker keeps every record.
        await read(line, 0, keep=True)
        processor, gateway = await line.start("text-completion"), await line.start("gateway")
        async with aiohttp.ClientSession(gateway.url) as http:
            for number in range(ASKED):
                path, headers = f"/api/v1/flow/{line.flow}/service/text-completion", {"X-Request-Id": f"r-{number}"}
                request = {"prompt": "Hi.", "user": "käthe"}
                async with http.post(path, json=request, headers=headers) as response:
                    assert response.status == 200, await response.text()
        # The last records may still be on their way to the broker.
        processor.process.send_signal(signal.SIGTERM)
        assert await processor.stopped(20) == 0
        unread = await read(line, ASKED, keep=False)
        again = await read(line, ASKED, keep=True)
    assert {record.request for record in unread} == {f"r-{number}" for number in range(ASKED)}
    assert sorted(unread, key=lambda record: record.request) == sorted(again, key=lambda record: record.request)
    assert {(record.payer.customer, record.door, record.outcome) for record in again} == {
        ("käthe", "native", "complete")
    }
