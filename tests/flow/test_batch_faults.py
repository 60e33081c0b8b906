"""Batches that fail, expire, or whose gateway ends: nothing is missing; and their files, lists and bounds."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm, release
from tests.fakes.passing_bus import PassingBus
from tests.fakes.unwritable_bus import UnwritableBus
from tests.flow.background_asking import DEADLINE, open_pair
from tests.flow.batch_asking import (
    CHAT,
    MODELS,
    TWO_PARTS,
    begin,
    keep_on,
    line,
    read,
    until_answered,
    until_over,
    write,
)
from tests.flow.open_gateway import TEXTS, another_gateway, open_gateway
from tests.flow.openai_sdk import open_sdk, sdk
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.config import GatewayConfig
from tg_base.server import Processor
from tg_gateway.dialects import batches
from tg_gateway.jobs import JobLogs, batch_store
from tg_gateway.jobs.key_list import KeyList, find_listed
from tg_gateway.jobs.log import HEAD
from tg_schema.errors import BadRequest, BusError, NotFound
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
async def test_what_a_gateway_is_asking_when_it_leaves_is_answered_too(max_wait: float) -> None:
    config = GatewayConfig(port=0, drain=0.0, max_wait=max_wait)
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(open_gateway(config))
        it.llm.step = asyncio.Semaphore(0)
        async with another_gateway(it.bus, config) as dying, sdk(dying) as client:
            begun = await begin(client, [line(f"l{number}", 1) for number in range(8)])
            await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        release(it.llm.step, 100)
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
            another_gateway(bus, GatewayConfig(port=0, drain=0.0), TEXTS) as opened,
            sdk(opened) as client,
        ):
            yield client

    async with Processor(bus, Topics(), llm, TEXTS, models=(llm.model,)):
        async with gateway() as dying:
            begun = await begin(dying, [line("a"), line("b")])
            await asyncio.wait_for(bus.lost.wait(), DEADLINE)
            await until_answered(dying, begun, 1)
        async with gateway() as other:
            batch = await until_over(other, await other.batches.retrieve(begun.id))
    assert (batch.status, batch.request_counts.completed) == ("completed", 2)
    assert len(llm.requests) == 2


async def test_files_are_kept_listed_and_deleted() -> None:
    async with open_sdk() as (_, client):
        data = b"\r\n--x\r\n\x00\xff line\n"
        files = [await client.files.create(file=(f"{each}.bin", data), purpose="user_data") for each in "abc"]
        assert [(each.bytes, each.filename, each.purpose) for each in files] == [
            (len(data), f"{each}.bin", "user_data") for each in "abc"
        ]
        assert (await client.files.content(files[0].id)).content == data
        page = await client.files.list(limit=2)
        assert ([each.filename for each in page.data], page.has_more) == (["c.bin", "b.bin"], True)
        assert [each.filename async for each in page] == ["c.bin", "b.bin", "a.bin"]
        assert (await client.files.list(purpose="batch")).data == []
        assert (await client.files.delete(files[1].id)).deleted
        assert [each.filename async for each in client.files.list()] == ["c.bin", "a.bin"]
        for ask in (client.files.retrieve, client.files.content, client.files.delete):
            for name in (files[1].id, "file-unknown", "file-output-batch_unknown"):
                with pytest.raises(NotFoundError):
                    await ask(name)
        oldest = await client.files.list(order="asc", limit=1)
        assert ([each.filename for each in oldest.data], oldest.has_more) == (["a.bin"], True)
        assert [each.filename async for each in client.files.list(order="asc", after=files[0].id)] == ["c.bin"]
        assert [each.filename async for each in client.files.list(limit=10_000)] == ["c.bin", "a.bin"]
        wrong: Any
        for wrong in ({"limit": 0}, {"limit": 10_001}, {"after": files[1].id}, {"order": "up"}):
            with pytest.raises(BadRequestError):
                await client.files.list(**wrong)


async def test_a_form_is_read_as_browsers_write_it() -> None:
    async with open_sdk() as (it, client):
        head = 'Content-Disposition: form-data; name="file"; filename="\u00fc \\"a\\" --x;.jsonl"\r\nX: name="purpose"'
        form = f"--x\r\n{head}\r\n\r\na--x\n--x\r\n--x\r\ncontent-disposition: form-data; name=purpose\r\n\r\nbatch"
        kind = {"Content-Type": 'multipart/form-data; charset=utf-8; boundary="x"'}
        async with it.http.post(
            "v1/files", data=f"before\r\n{form}\r\n--x--\r\nbehind".encode(), headers=kind
        ) as answer:
            file = await answer.json()
        assert (file["filename"], file["purpose"]) == ('\u00fc "a" --x;.jsonl', "batch")
        assert (await client.files.content(file["id"])).content == b"a--x\n--x"


async def test_what_is_no_upload_is_refused() -> None:
    async with open_sdk() as (it, client):
        for headers in ({}, {"Content-Type": "multipart/form-data; boundary=x"}):
            async with it.http.post("v1/files", data=b"--x\r\n\r\n--x--", headers=headers) as response:
                assert response.status == 400
        with pytest.raises(NotFoundError):
            await client.batches.create(input_file_id="file-no", endpoint=CHAT, completion_window="24h")
        with pytest.raises(BadRequestError, match="endpoint"):
            await client.batches.create(input_file_id="file-no", endpoint=MODELS, completion_window="24h")


async def test_lists_go_on_behind_an_id() -> None:
    async with open_sdk() as (_, client):
        begun = [await begin(client, [line("a", each)]) for each in range(3)]
        names = [each.id for each in reversed(begun)]
        page = await client.batches.list(limit=2)
        assert ([each.id for each in page.data], page.has_more) == (names[:2], True)
        assert [each.id async for each in page] == names
        assert [each.id for each in (await client.batches.list(after=names[1])).data] == names[2:]


async def fill(kept: batch_store.KeyBatches, known: Sequence[int]) -> None:
    """List files of these sizes, without what they would have."""
    listed = KeyList(kept.logs, kept.owner, "files", batches.FILE_SECONDS)
    for number, size in enumerate(known):
        await listed.add(f"file-{number}", b"{}", kept.logs.clock() + 9_000, size)


async def test_no_more_is_kept_than_may_and_nothing_is_erased_for_it() -> None:
    async with open_pair() as pair:
        begun = await begin(pair.one, [line("a", 2)])
        # Through any gateway.
        file = await pair.other.files.create(file=b"any", purpose="user_data")
        await fill(keep_on(pair.opened.bus), [0] * (batch_store.MAX_KEPT - 3))
        for client in (pair.one, pair.other):
            with pytest.raises(BadRequestError, match="delete some"):
                await client.files.create(file=b"any", purpose="user_data")
            with pytest.raises(BadRequestError, match="delete some"):
                await client.batches.create(input_file_id=begun.input_file_id, endpoint=CHAT, completion_window="24h")
        pair.step(2)
        batch = await until_over(pair.one, begun)
        assert (batch.status, batch.request_counts.completed) == ("completed", 1)
        await pair.one.files.delete(file.id)
        await pair.one.files.create(file=b"x" * 100, purpose="user_data")


async def test_the_bytes_of_a_key_are_bounded() -> None:
    async with open_pair() as pair:
        await fill(keep_on(pair.opened.bus), [batch_store.KEY_BYTES - 400])
        with pytest.raises(BadRequestError, match="bytes"):
            await pair.one.files.create(file=b"x" * 401, purpose="user_data")
        await pair.one.files.create(file=b"x" * 400, purpose="user_data")


async def test_what_is_listed_goes_on_into_the_next_period_and_not_beyond() -> None:
    now, bus = 0.0, MemoryBus()
    logs = JobLogs(bus, Topics(), lambda: now)
    known = KeyList(logs, "key", "files", 100.0)
    for name, at in (("a", 10.0), ("b", 99.0), ("c", 101.0), ("b", 102.0)):
        now = at
        await known.add(name, name.encode(), at + 100.0, 5)
    assert find_listed(await known.read(), now) == {name: (name.encode(), 5) for name in "abc"}
    await known.add("a", b"", 0.0)
    assert list(find_listed(await known.read(), now)) == ["b", "c"]
    now = 202.0
    assert list(find_listed(await known.read(), now)) == []
    now = 350.0
    await logs.written.make_room("key", now)
    assert await bus.read(logs.topic(known.name(0))) == ()
    assert await known.read() == []


async def test_a_file_without_one_of_its_parts_is_not_read() -> None:
    bus = MemoryBus()
    kept = keep_on(bus)
    expires = int(kept.logs.clock()) + 9
    await kept.put(batches.File("file-a", len(TWO_PARTS), "", "batch", 0, expires), TWO_PARTS)
    assert await kept.read("file-a") == TWO_PARTS
    first, _, *rest = await bus.read(kept.logs.topic("file-a"))
    for entry in (first, *rest):
        await bus.append(kept.logs.topic("file-b"), entry.body, entry.properties)
    with pytest.raises(BusError):
        await kept.read("file-b")
