"""What our own model server tells of its load, on its page and beside its answers, and what our scraper reads there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
import pytest
from aiohttp import ClientSession

from tests.flow.open_gateway import open_gateway
from tests.llama.demo_llm import PIRATE, POLITE, asked, at_rest, opened, text_of, until
from tests.openapi.described_gateway import MODEL, described_gateway
from tg_base.telemetry import QUEUE_WAIT_SECONDS
from tg_gateway.telemetry import CHUNK_GAP_SECONDS, FIRST_TOKEN_SECONDS, REQUEST_SECONDS
from tg_llama.provider import LlamaCpp
from tg_picker.core import AdapterReport, Endpoint, LoadReport
from tg_picker.pools import read_load_header, read_page
from tg_picker.pools.scraper import ScrapeOptions, Scraper

pytestmark = pytest.mark.model

LASTING = asked("word " * 100, temperature=0, ignore_eos=True)
"""It goes on until the context is full, so long that a test is over before."""
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Count to 3."}], "max_tokens": 4}
ASK, TOLD = "endpoint-load-metrics-format", "endpoint-load-metrics"


@pytest.fixture(scope="module", autouse=True)
def small_page() -> None:
    """Other tests of this process had hundreds of flows: their page would be larger than a scraper reads."""
    for histogram in (QUEUE_WAIT_SECONDS, FIRST_TOKEN_SECONDS, CHUNK_GAP_SECONDS, REQUEST_SECONDS):
        histogram._cells.clear()


@pytest.fixture
async def llm() -> AsyncIterator[LlamaCpp]:
    async with opened(
        adapters={"pirate": PIRATE, "polite": POLITE}, max_resident_adapters=1, slots=2, engines=1, context=8192
    ) as llm:
        yield llm


@pytest.fixture
async def http(llm: LlamaCpp) -> AsyncIterator[ClientSession]:
    async with described_gateway(llm) as http:
        yield http


async def read(http: ClientSession) -> LoadReport | None:
    """The page, as the scraper reads it."""
    async with http.get("metrics") as response:
        return read_page(await response.read(), "auto", 1.0)


async def test_an_idle_model_tells_its_size(http: ClientSession) -> None:
    told = await read(http)
    assert told is not None
    assert told.started_at is not None
    known = msgspec.structs.replace(told, started_at=None)
    assert known == LoadReport(1.0, 0, 0, 0.0, 16, 1024, AdapterReport(1, resident={}), {})


async def test_the_page_tells_what_runs_what_waits_and_which_adapters_are_in_memory(
    llm: LlamaCpp, http: ClientSession
) -> None:
    async with aclosing(llm.on_request(msgspec.structs.replace(LASTING, adapter="pirate"))) as endless:
        await anext(endless)
        polite = [
            asyncio.create_task(text_of(llm, msgspec.structs.replace(LASTING, adapter="polite"))) for _ in range(2)
        ]
        await until(llm, lambda _: len(llm.engine.adapters.waiting) == 2)
        report = await read(http)
        assert report is not None
        assert (report.queued, report.running, report.queued_by_adapter) == (2, 1, {"polite": 2})
        assert 0 < (report.kv_usage or 0) <= 0.5
        assert report.adapters == AdapterReport(1, frozenset({"pirate"}), frozenset({"polite"}), {"pirate": "gpu"})
        for task in polite:
            task.cancel()
        await asyncio.wait(polite)
    await at_rest(llm)
    report = await read(http)
    # It is idle, and still in memory.
    assert report is not None
    assert report.adapters == AdapterReport(1, resident={"pirate": "gpu"})


async def test_requests_that_wait_for_a_slot_are_counted_where_they_wait(http: ClientSession) -> None:
    long = {**BODY, "max_tokens": 4000, "min_tokens": 4000}
    posts: list[asyncio.Task[object]] = []
    while (report := await read(http)) is None or report.running != 2 or not report.queued:
        if all(task.done() for task in posts):
            posts = [asyncio.create_task(http.post("v1/chat/completions", json=long)) for _ in range(6)]
    assert report.queued <= 4
    for task in posts:
        task.cancel()
    await asyncio.wait(posts)


async def test_the_scraper_follows_the_real_page(http: ClientSession) -> None:
    seen: list[LoadReport] = []
    came = asyncio.Event()

    def take(_: Endpoint, report: LoadReport) -> None:
        seen.append(report)
        came.set()

    address = str(http._base_url).removeprefix("http://").strip("/")
    async with Scraper(take, ScrapeOptions(interval=0.005, timeout=20)) as scraper:
        scraper.update([Endpoint(address, "ours")])
        await came.wait()
    assert (seen[0].queued, seen[0].blocks, seen[0].adapters) == (0, 1024, AdapterReport(1, resident={}))


async def test_an_answer_tells_the_load_in_the_form_that_is_asked_for(http: ClientSession) -> None:
    for form, stream in (("text", False), ("text", True), ("JSON", False), ("json", True)):
        async with http.post("v1/chat/completions", json={**BODY, "stream": stream}, headers={ASK: form}) as response:
            told = response.headers[TOLD]
            await response.read()
        assert told.startswith(form.upper() + " ")
        report = read_load_header(told, 1.0)
        assert report is not None
        assert None not in (report.queued, report.running, report.kv_usage)


async def test_a_gateway_without_the_model_tells_what_it_is_announced() -> None:
    async with open_gateway() as it:
        body = {"model": it.llm.model, "messages": [{"role": "user", "content": "3"}]}
        async with it.http.post("v1/chat/completions", json=body, headers={ASK: "json"}) as response:
            assert response.status == 200
            report = read_load_header(response.headers[TOLD], 1.0)
        assert report is not None
        assert (report.kv_usage, report.adapters) == (None, None)
        for headers in ({}, {ASK: "bin"}):
            async with it.http.post("v1/chat/completions", json=body, headers=headers) as response:
                assert TOLD not in response.headers
