"""GET /api/v1/live: what a gateway does now, for whom, once and as it changes; and streams that are stopped there."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Set
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm, SteppedLlm
from tests.fakes.wordy_llm import WordyLlm
from tests.flow.open_gateway import CONFIG, MOUNTS, QUICK, TEXTS, Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.until import AT_ONCE_SECONDS, until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import ApiKey, Config, GatewayConfig, PromptConfig, TextCompletionConfig
from tg_base.llm import LlmChunk
from tg_base.server import Processor
from tg_client import TgClient
from tg_gateway.access import Limits
from tg_gateway.access.rate_limits import MAX_SIDE_BY_SIDE
from tg_gateway.app import Gateway
from tg_gateway.relay.live import MAX_FOLLOWERS, MAX_FOLLOWERS_OF_KEY
from tg_gateway.relay.live_rows import MAX_NAME_CHARACTERS
from tg_schema import TextCompletionRequest, decode, encode
from tg_schema.errors import IncompleteStream, NotFound, RateLimited
from tg_schema.live import LiveDocument, LiveQueue

LIVE = "api/v1/live"
EVENTS = {"Accept": "text/event-stream"}
QUEUE = "default/text-completion"


def key_of(name: str, *, admin: bool = False) -> ApiKey:
    return ApiKey(name=name, sha256=hashlib.sha256(name.encode()).hexdigest(), admin=admin)


KEYED = GatewayConfig(port=0, drain=0.05, keys=(key_of("alice"), key_of("bob"), key_of("root", admin=True)))


class SteadyLlm(CountingLlm):
    """Says a word every few milliseconds until it is left."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        try:
            while True:
                self.generated += 1
                yield LlmChunk(text="word ")
                await asyncio.sleep(0.002)
        finally:
            self.stopped.set()


class CrowdedLlm(WordyLlm):
    """Knows how many of its answers run."""

    running = 0

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        self.running += 1
        try:
            async for chunk in super().generate_content_stream(request):
                yield chunk
        finally:
            self.running -= 1


@asynccontextmanager
async def asked(it: Opened, key: str = "", prompt: str = "9", **body: Any) -> AsyncIterator["asyncio.Task[bytes]"]:
    """A request that runs, and in the end is left; the task has what its client reads."""

    async def read() -> bytes:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with ClientSession(it.gateway.url) as http:
            asking = {"prompt": prompt, "streaming": True, **body}
            async with http.post("api/v1/text-completion", json=asking, headers=headers) as response:
                return await response.read()

    reading = asyncio.create_task(read())
    try:
        yield reading
    finally:
        reading.cancel()
        await asyncio.wait([reading])


async def see(
    client: TgClient, right: Callable[[LiveDocument], object] = lambda it: len(it.streams) == 1
) -> LiveDocument:
    """The first document that is as it should be."""
    async with client.follow_live() as documents:
        async for document in documents:
            if right(document):
                return document
    raise AssertionError("the gateway has ended the events")


def queue_of(document: LiveDocument) -> LiveQueue:
    queue = document.queues[QUEUE]
    assert queue is not None
    return queue


async def test_a_stream_is_seen_while_it_runs() -> None:
    llm = CountingLlm()
    step = llm.step = asyncio.Semaphore(3)
    async with open_gateway(llm=llm) as it, TgClient(it.gateway.url) as client, asked(it, prompt="4") as reading:
        seen: list[LiveDocument] = []

        def goes_on(document: LiveDocument) -> bool:
            seen.append(document)
            if any(row and row.tokens for row in document.streams.values()):
                step.release()
            return not document.streams and reading.done()

        await see(client, goes_on)
        (row,) = next(each for each in seen if each.streams).streams.values()
        assert row is not None
        assert (row.flow, row.service, row.model, row.key, row.door) == (
            *("default", "text-completion", "counting", "anybody", "sse"),
        )
        running = [each.queues[QUEUE] for each in seen if each.streams]
        assert {(each.model, each.processors, each.capacity) for each in running if each} == {("counting", 1, 256)}
        last = queue_of(seen[-1])
        assert (last.errors, last.waiting, last.failing) == (0, 0, "")
        assert last.tokens > 0
        assert 0 < (last.first_p50 or 0) <= (last.first_p99 or 0)
        assert seen[-1].totals == {"gateways": 1, "queues": 2, "processors": 2, "pools": 0, "streams": 0}
        assert [each.at for each in seen] == sorted({each.at for each in seen})
        assert {each.queues for each in seen[-1].processors.values() if each} == {QUEUE, "default/prompt"}


async def test_changes_are_changes_and_the_document_is_the_same_for_all() -> None:
    llm = SteppedLlm()
    async with open_gateway(llm=llm) as it, AsyncExitStack() as stack:
        await stack.enter_async_context(asked(it))
        await llm.started.wait()
        first, second = [await stack.enter_async_context(it.http.get(LIVE, headers=EVENTS)) for _ in range(2)]
        told = [[await anext(_events(each.content)) for _ in range(2)] for each in (first, second)]
        assert first.headers["Cache-Control"] == "no-cache"
        for whole, change in told:
            assert (whole.whole, change.whole) == (True, False)
            assert whole.processors
            # Nothing has happened, except that presence may have come.
            assert change.streams == {}
        async with it.http.get(LIVE) as response:
            (again,) = decode(LiveDocument, await response.read()).streams.values()
        (row,) = told[0][0].streams.values()
        assert again == row


async def _events(content: Any) -> AsyncGenerator[LiveDocument, None]:
    async for line in content:
        if line.startswith(b"data: "):
            yield decode(LiveDocument, line.removeprefix(b"data: "))


async def test_a_late_reader_gets_the_whole_document_anew() -> None:
    async with open_gateway() as it:
        late, steady = it.gateway._live.follow(None), it.gateway._live.follow(None)
        assert b'"whole":true' in await anext(late)
        for number in range(3):
            assert (b'"whole":true' in await anext(steady)) == (number == 0)
        assert b'"whole":true' in await anext(late)
        assert b'"whole":false' in await anext(late)
        await late.aclose()
        await steady.aclose()


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_stopped_stream_ends_its_model(streaming: bool) -> None:
    llm = SteadyLlm()
    async with (
        open_gateway(llm=llm) as it,
        TgClient(it.gateway.url, retries=0) as client,
        asked(it, streaming=streaming) as reading,
    ):
        (name,) = (await see(client)).streams
        await client.stop_stream(name)
        await asyncio.wait_for(llm.stopped.wait(), AT_ONCE_SECONDS)
        generated = llm.generated
        assert b'"type":"cancelled"' in await reading
        with pytest.raises(NotFound, match="it has ended"):
            await client.stop_stream(name)
        await see(client, lambda document: not document.streams)
        assert llm.generated == generated


async def test_stopped_streams_are_forgotten_though_nobody_looks() -> None:
    async with open_gateway(llm=SteadyLlm()) as it, TgClient(it.gateway.url, retries=0) as client:
        live = it.gateway._live
        for _ in range(3):
            async with it.http.post("api/v1/text-completion", json={"prompt": "9", "streaming": True}) as response:
                await client.stop_stream(response.headers["X-Stream-Id"])
                assert b'"type":"cancelled"' in await response.read()
        await until(lambda: not live._relay.running)
        assert not [name for name, kept in vars(live).items() if isinstance(kept, Set | dict) and kept]


async def test_a_client_that_does_not_read_is_stopped_too() -> None:
    llm = WordyLlm()
    async with (
        open_gateway(llm=llm, timing=QUICK, limits=Limits(write=60.0)) as it,
        TgClient(it.gateway.url, retries=0) as client,
        raw_connection(it.address) as raw,
    ):
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        raw.post("/api/v1/text-completion", b'{"prompt": "10000000", "streaming": true}')
        (name,) = (await see(client)).streams
        await client.stop_stream(name)
        await asyncio.wait_for(llm.stopped.wait(), AT_ONCE_SECONDS)
        document = await see(client, lambda document: not document.streams)
        assert document.totals["streams"] == 0
        assert it.gateway._live._relay.running, "its client has not read its end"
        with pytest.raises(NotFound):
            await client.stop_stream(name)


async def test_a_silent_model_is_stopped_though_its_client_does_not_read() -> None:
    llm = WordyLlm()
    step = llm.step = asyncio.Semaphore(0)
    async with (
        open_gateway(llm=llm, timing=QUICK, limits=Limits(write=60.0)) as it,
        TgClient(it.gateway.url, retries=0) as client,
        raw_connection(it.address) as raw,
    ):
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        raw.post("/api/v1/text-completion", b'{"prompt": "10000000", "streaming": true}')
        (name,) = (await see(client)).streams
        (exchange,) = it.gateway._live._relay.running

        def fill() -> bool:
            step.release()
            return exchange.responses.waiting > 0

        await until(fill)
        await client.stop_stream(name)
        await asyncio.wait_for(llm.stopped.wait(), AT_ONCE_SECONDS)


async def test_all_requests_of_a_list_are_stopped_though_their_client_does_not_read() -> None:
    llm, many = CrowdedLlm(), MAX_SIDE_BY_SIDE + 2
    step = llm.step = asyncio.Semaphore(0)
    async with (
        open_gateway(llm=llm, timing=QUICK, limits=Limits(write=60.0)) as it,
        TgClient(it.gateway.url, retries=0) as client,
        raw_connection(it.address) as raw,
    ):
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        asking = {"model": llm.model, "prompt": ["10000000"] * many, "stream": True}
        raw.post("/v1/completions", encode(asking))
        (name,) = (await see(client)).streams
        (exchange,) = it.gateway._live._relay.running
        await until(lambda: llm.running == MAX_SIDE_BY_SIDE)

        def fill() -> bool:
            step.release()
            return exchange.responses.waiting > 0

        await until(fill)
        asked_bytes = exchange.responses.request_bytes
        await client.stop_stream(name)
        await until(lambda: not llm.running, within=5.0)
        assert it.gateway._live._relay.running, "its client has not read its end"
        assert exchange.responses.request_bytes == asked_bytes, "more of the list was asked"


async def test_names_of_a_megabyte_are_cut() -> None:
    name, bus = "\x1b" + "x" * 1_000_000, MemoryBus()
    async with (
        open_gateway(bus=bus) as it,
        Processor(bus, CONFIG.topics, CountingLlm(), TEXTS, models=(name,), grace=0.05),
        TgClient(it.gateway.url) as client,
    ):
        document = await see(client, lambda it: len(it.processors) == 3)
        (cut,) = {row.model for row in document.processors.values() if row} - {"counting", ""}
        assert len(cut) == MAX_NAME_CHARACTERS
        assert cut.isprintable()
        async with it.http.get(LIVE) as response:
            assert len(await response.read()) < 10_000


async def test_long_names_with_the_same_beginning_have_rows_of_their_own() -> None:
    services = {"text-completion": TextCompletionConfig(), "prompt": PromptConfig()}
    config = Config(flows={f"{'x' * MAX_NAME_CHARACTERS}-{end}": services for end in "ab"})
    routes = config.routes("text-completion") + config.routes("prompt")
    async with (
        aclosing(MemoryBus()) as bus,
        Requestor(bus, config.topics, queues=tuple(route.request for route in routes)) as requestor,
        Gateway(GatewayConfig(port=0), requestor, routes, mounts=MOUNTS) as gateway,
        TgClient(gateway.url) as client,
    ):
        names = (await client.live()).queues
        assert len(names) == len(routes) == 4
        assert {len(name) for name in names} == {MAX_NAME_CHARACTERS}


async def test_only_so_many_follow_at_a_time() -> None:
    async with open_gateway() as it, AsyncExitStack() as stack:
        client = await stack.enter_async_context(TgClient(it.gateway.url, retries=0))
        for _ in range(MAX_FOLLOWERS):
            await anext(await stack.enter_async_context(client.follow_live()))
        with pytest.raises(RateLimited, match="too many look"):
            await see(client)
        assert (await client.live()).whole


async def test_a_key_takes_no_place_of_an_operator_or_another_key() -> None:
    async with open_gateway(KEYED) as it, AsyncExitStack() as stack:
        alice, bob, root = [
            await stack.enter_async_context(TgClient(it.gateway.url, token=token, retries=0))
            for token in ("alice", "bob", "root")
        ]
        for _ in range(MAX_FOLLOWERS_OF_KEY):
            await anext(await stack.enter_async_context(alice.follow_live()))
        with pytest.raises(RateLimited, match="too many look"):
            await see(alice)
        for other in (bob, root):
            await see(other, lambda document: document.whole)


async def test_events_end_in_order_when_the_gateway_leaves() -> None:
    async with AsyncExitStack() as leaving:
        it = await leaving.enter_async_context(open_gateway())
        async with TgClient(it.gateway.url, retries=0) as client, client.follow_live() as following:
            await anext(following)
            ending = asyncio.create_task(leaving.aclose())
            rest = [document async for document in following]
            assert [each.draining for each in rest] in ([], [True], [False], [False, True])
            await ending


async def test_the_head_alone() -> None:
    async with open_gateway() as it:
        for headers in ({}, EVENTS):
            async with it.http.head(LIVE, headers=headers) as response:
                assert (response.status, await response.read()) == (200, b"")
        await until(lambda: not it.gateway._live._followers)


async def test_events_that_break_off_are_an_error_of_the_client() -> None:
    async with (
        open_gateway(limits=Limits(write=60.0)) as it,
        TgClient(it.gateway.url, retries=0) as client,
        client.follow_live() as following,
    ):
        await anext(following)
        await it.gateway._runner.cleanup()
        with pytest.raises(IncompleteStream):
            _ = [document async for document in following]
