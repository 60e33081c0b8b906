"""Batches that fail, expire, or whose gateway ends: nothing is missing or asked twice."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.passing_bus import PassingBus
from tests.fakes.unwritable_bus import UnwritableBus
from tests.flow.background_asking import DEADLINE, open_pair
from tests.flow.batch_asking import (
    CHAT,
    TWO_PARTS,
    begin,
    keep_on,
    line,
    read,
    until_answered,
    until_over,
    write,
)
from tests.flow.open_gateway import PROMPTS, QUEUES, TEXTS, open_gateway
from tests.flow.openai_sdk import open_sdk, sdk
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import GatewayConfig
from tg_base.server import Processor
from tg_gateway.app import Gateway
from tg_gateway.dialects import batches
from tg_gateway.jobs import batch_store
from tg_gateway.jobs.log import HEAD
from tg_schema.errors import BadRequest, NotFound
from tg_schema.topics import Topics


async def test_a_batch_that_could_not_be_put_on_the_bus_is_not_there() -> None:
    # The bus refuses what is no topic.
    kept = keep_on(MemoryBus(), "nowhere")
    now = int(kept.logs.clock())
    with pytest.raises(BadRequest):
        await kept.begin(batches.Head("batch_1", CHAT, "file-1", 1, now, now + 9))
    assert await kept.list("batch") == {}
    with pytest.raises(NotFound):
        await kept.find("batch_1")


async def test_a_batch_whose_head_cannot_be_read_fails() -> None:
    async with open_sdk() as (it, client):
        kept = keep_on(it.bus)
        await kept.logs.begin(kept.owner, "batch_1", b"{}", HEAD, seconds=batches.FILE_SECONDS)
        await it.bus.publish(kept.queue, b"", {batch_store.BATCH_NAME: "batch_1", batch_store.BATCH_KEY: "anybody"})
        batch = await until_over(client, await client.batches.retrieve("batch_1"))
        assert (batch.status, batch.failed_at is not None) == ("failed", True)
        assert [each.code for each in batch.errors.data] == ["unreadable"]
        assert [each.id async for each in client.batches.list()] == ["batch_1"]


@pytest.mark.parametrize("status", ["failed", "expired"])
async def test_a_batch_that_cannot_be_made_ends(status: str) -> None:
    async with open_sdk() as (it, client):
        kept = keep_on(it.bus)
        now = int(kept.logs.clock())
        await kept.put(batches.File("file-a", len(TWO_PARTS), "", "batch", now, now + 99), TWO_PARTS)
        first, _, *rest = await it.bus.read(kept.logs.topic("file-a"))
        # Its file has lost a part, which may come; or its results are none of ours, which cannot change.
        for entry in (first, *rest):
            await it.bus.append(kept.logs.topic("file-b"), entry.body, entry.properties)
        if status == "failed":
            await it.bus.append(kept.logs.topic(kept.name_results("batch_1")), b"{}", {})
        await kept.begin(batches.Head("batch_1", CHAT, "file-b", 1, now, now + 2))
        batch = await until_over(client, await client.batches.retrieve("batch_1"))
        assert batch.status == status
        assert (status == "expired") == ((batch.expired_at or 0) >= now + 2)


async def test_an_answer_that_the_bus_does_not_take_is_an_error() -> None:
    bus = UnwritableBus(MemoryBus())
    bus.limit = 60_000
    async with open_sdk(bus=bus) as (_, client):
        # What several prompts are answered is kept nowhere else.
        bodies = {"large": ["3000"] * 6, "small": ["1", "1"]}
        url: Any = "/v1/completions"
        lines = [
            {"custom_id": name, "method": "POST", "url": url, "body": {"model": "counting", "prompt": prompts}}
            for name, prompts in bodies.items()
        ]
        batch = await until_over(client, await begin(client, lines, url))
        assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 1)
        (bad,) = await read(client, batch.error_file_id)
        assert (bad["custom_id"], bad["response"]["status_code"]) == ("large", 413)


async def test_a_batch_whose_time_is_over_expires() -> None:
    async with open_pair() as pair:
        file = await pair.one.files.create(file=("in.jsonl", write([line("a", 100)])), purpose="batch")
        kept = keep_on(pair.opened.bus)
        now = int(kept.logs.clock())
        await kept.begin(batches.Head("batch_1", CHAT, file.id, 1, now, now + 2))
        batch = await until_over(pair.one, await pair.one.batches.retrieve("batch_1"))
        assert (batch.status, batch.expired_at is not None, batch.output_file_id) == ("expired", True, None)
        (rest,) = await read(pair.one, batch.error_file_id)
        assert (rest["custom_id"], rest["error"]["code"]) == ("a", "batch_expired")


@pytest.mark.parametrize("max_wait", [0.0, 3600.0])
async def test_another_gateway_goes_on_with_a_batch(max_wait: float) -> None:
    config, many = GatewayConfig(port=0, drain=0.0, max_wait=max_wait), 300
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(open_gateway(config))
        requestor = await stack.enter_async_context(Requestor(it.bus, Topics(), queues=QUEUES))
        async with Gateway(config, requestor, TEXTS + PROMPTS) as dying, sdk(dying) as client:
            begun = await begin(client, [line(f"l{number}", number % 4) for number in range(many)])
            other = await stack.enter_async_context(sdk(it.gateway))
            await until_answered(other, begun, many // 3)
        batch = await until_over(other, await other.batches.retrieve(begun.id))
        assert (batch.status, batch.request_counts.completed) == ("completed", many)
        answers = await read(other, batch.output_file_id)
        assert sorted(each["custom_id"] for each in answers) == sorted(f"l{number}" for number in range(many))
        assert len(it.llm.requests) == many


@pytest.mark.parametrize("max_wait", [0.0, 3600.0])
async def test_what_a_gateway_is_asking_when_it_leaves_is_answered_too(max_wait: float) -> None:
    config = GatewayConfig(port=0, drain=0.0, max_wait=max_wait)
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(open_gateway(config))
        it.llm.step = asyncio.Semaphore(0)
        requestor = await stack.enter_async_context(Requestor(it.bus, Topics(), queues=QUEUES))
        async with Gateway(config, requestor, TEXTS + PROMPTS) as dying, sdk(dying) as client:
            begun = await begin(client, [line(f"l{number}", 1) for number in range(8)])
            async with asyncio.timeout(DEADLINE):
                await it.llm.started.wait()
        for _ in range(100):
            it.llm.step.release()
        other = await stack.enter_async_context(sdk(it.gateway))
        batch = await until_over(other, await other.batches.retrieve(begun.id))
        assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("completed", 8, 0)


class ForgetfulBus(PassingBus):
    """Loses the first message of a line, as a gateway does that is killed before it publishes.

    Attributes:
        lost: set when it has lost the message.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.lost = asyncio.Event()

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        if "/tg-flex-" in topic and not self.lost.is_set():
            self.lost.set()
        else:
            await super().publish(topic, body, properties)


async def test_a_line_whose_gateway_died_before_it_was_on_the_bus_is_asked() -> None:
    """Its log has begun, so that another gateway finds it as a line that waits, and no message tells anybody of it."""
    llm, bus = CountingLlm(), ForgetfulBus(MemoryBus())

    @asynccontextmanager
    async def gateway() -> AsyncIterator[AsyncOpenAI]:
        async with (
            Requestor(bus, Topics(), queues=QUEUES) as requestor,
            Gateway(GatewayConfig(port=0, drain=0.0), requestor, TEXTS) as opened,
            sdk(opened) as client,
        ):
            yield client

    async with Processor(bus, Topics(), llm, TEXTS, models=(llm.model,)):
        async with gateway() as dying:
            begun = await begin(dying, [line("a"), line("b")])
            async with asyncio.timeout(DEADLINE):
                await bus.lost.wait()
            await until_answered(dying, begun, 1)
        async with gateway() as other:
            batch = await until_over(other, await other.batches.retrieve(begun.id))
    assert (batch.status, batch.request_counts.completed) == ("completed", 2)
    assert len(llm.requests) == 2
