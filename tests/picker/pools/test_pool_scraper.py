"""The scraper against servers that fail in all ways: what it tells, and that it neither stops nor leaves anything."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
import structlog

from tests.fakes.model_server import ModelServer, PageFault
from tests.fakes.model_server_pages import Load, sglang_page, triton_page, vllm_page
from tests.observed_calls import observe_calls
from tests.until import until
from tg_picker.core import Endpoint, LoadReport
from tg_picker.pools import read_page
from tg_picker.pools.scraper import MAX_INLINE_BYTES, REFUSED_BACKOFF_SECONDS, ScrapeOptions, Scraper

PATIENT = ScrapeOptions(interval=0.005, timeout=20)


class Reports:
    """What the scraper tells, by address."""

    def __init__(self) -> None:
        self.last: dict[str, LoadReport] = {}
        self._came = asyncio.Event()

    def __call__(self, endpoint: Endpoint, report: LoadReport) -> None:
        self.last[endpoint.address] = report
        self._came.set()

    async def queued(self, server: ModelServer, number: int) -> LoadReport:
        """The first report with so many queued requests."""
        async with asyncio.timeout(30):
            while (told := self.last.get(server.address)) is None or told.queued != number:
                self._came.clear()
                await self._came.wait()
        return told


@pytest.fixture
async def servers() -> AsyncIterator[list[ModelServer]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(ModelServer.running()) for _ in range(3)]


def endpoints(*servers: ModelServer) -> list[Endpoint]:
    return [Endpoint(server.address, f"server-{number}") for number, server in enumerate(servers)]


async def test_servers_of_all_kinds_are_followed_over_one_connection_each(servers: list[ModelServer]) -> None:
    told = Reports()
    pages = (vllm_page, sglang_page, triton_page)
    async with Scraper(told, PATIENT) as scraper:
        scraper.update(endpoints(*servers))
        for number in (1, 2, 3):
            for server, page in zip(servers, pages, strict=True):
                server.page = page(Load(number, 4, 0.5))
            for server in servers:
                report = await told.queued(server, number)
                assert (report.running, report.kv_usage) == (4, 0.5)
        assert scraper.failing == {}
    assert [server.connections for server in servers] == [1, 1, 1]


@pytest.mark.parametrize(("chosen", "told_of"), [(1.0, 1.0), (0.005, 0.01)], ids=["as chosen", "many servers"])
async def test_a_report_tells_when_the_next_one_is_due(
    servers: list[ModelServer], chosen: float, told_of: float
) -> None:
    told = Reports()
    async with Scraper(told, ScrapeOptions(interval=chosen, timeout=20)) as scraper:
        scraper.update([*endpoints(servers[0]), Endpoint("127.0.0.1:1", "gone")])
        assert (await told.queued(servers[0], 0)).interval == told_of


async def test_servers_are_looked_at_past_the_proxy_of_the_environment(
    servers: list[ModelServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    told = Reports()
    servers[0].page = vllm_page(Load(1))
    async with Scraper(told, PATIENT) as scraper:
        scraper.update(endpoints(servers[0]))
        await told.queued(servers[0], 1)


@pytest.mark.parametrize("fault", [fault for fault in PageFault if fault is not PageFault.NONE])
async def test_a_server_that_fails_tells_nothing_and_holds_up_no_other(
    servers: list[ModelServer], fault: PageFault
) -> None:
    told = Reports()
    first, other = servers[:2]
    timeout = 1 if fault in {PageFault.SILENCE, PageFault.STALL} else 20
    first.page = other.page = vllm_page(Load(1))
    logs: list[MutableMapping[str, Any]]
    returned: dict[str, bool] = {}
    with structlog.testing.capture_logs() as logs:
        # One place: a server that hangs has to give it back.
        options = ScrapeOptions(interval=0.005, timeout=timeout, concurrency=1)

        def welcome(endpoint: Endpoint, report: LoadReport | None, refused: bool) -> None:
            assert report is not None
            assert report.queued == 5
            returned[endpoint.address] = refused

        async with Scraper(told, options, welcome) as scraper:
            scraper.update(endpoints(first, other))
            await told.queued(first, 1)
            first.fault = fault
            await first.looked(2)
            before = told.last[first.address]
            other.page = vllm_page(Load(2))
            await told.queued(other, 2)
            assert told.last[first.address] is before
            assert list(scraper.failing) == [first.address]
            assert "defect" not in scraper.failing[first.address]
            away = scraper.unreachable
            assert scraper.refusing == (away if fault in {PageFault.ABORT, PageFault.HEADERS} else set())
            assert returned == {}
            first.fault, first.page = PageFault.NONE, vllm_page(Load(5))
            await told.queued(first, 5)
            assert returned == dict.fromkeys(away, fault in {PageFault.ABORT, PageFault.HEADERS})
            assert scraper.failing == {}
    events = [(each["event"], each["server"]) for each in logs if each["server"] == "server-0"]
    assert events == [("scrape.failed", "server-0"), ("scrape.recovered", "server-0")]


async def test_a_server_that_is_gone_or_left_the_pool(servers: list[ModelServer]) -> None:
    told = Reports()
    first, second, third = servers
    gone = Endpoint("127.0.0.1:1", "gone")
    async with Scraper(told, PATIENT) as scraper:
        scraper.update([gone, *endpoints(first)])
        await told.queued(first, 0)
        while not scraper.failing:
            await first.looked()
        assert scraper.failing == {gone.address: "the server cannot be reached, or breaks the connection"}
        scraper.update(endpoints(second, third))
        second.page = third.page = vllm_page(Load(1))
        await told.queued(second, 1)
        await told.queued(third, 1)
        assert scraper.failing == {}
        first.page = vllm_page(Load(9))
        before = first.looks
        await second.looked(5)
        assert first.looks <= before + 1
        scraper.update([])
        scraper.update(endpoints(first))
        await told.queued(first, 9)


async def test_a_server_where_nobody_listens_is_soon_looked_at_again() -> None:
    async with Scraper(Reports(), ScrapeOptions(interval=REFUSED_BACKOFF_SECONDS)) as scraper:
        scraper.update([Endpoint("127.0.0.1:1", "gone")])
        await until(lambda: scraper.failing)
        (target,) = scraper._targets.values()
        assert scraper._find_pause(target) <= REFUSED_BACKOFF_SECONDS


async def test_closing_waits_for_nobody(servers: list[ModelServer]) -> None:
    server = servers[0]
    server.fault = PageFault.SILENCE
    async with Scraper(Reports(), ScrapeOptions(timeout=1000)) as scraper:
        scraper.update(endpoints(server))
        await server.looked()
    async with Scraper(Reports()):
        pass


async def test_a_follower_that_fails_ends_no_look(servers: list[ModelServer]) -> None:
    server = servers[0]
    asked = 0

    def observe(endpoint: Endpoint, report: LoadReport) -> None:
        nonlocal asked
        asked += 1
        raise ValueError

    async with Scraper(observe, PATIENT) as scraper:
        scraper.update(endpoints(server))
        await server.looked(3)
        assert asked >= 2
        assert scraper.failing == {server.address: "a defect, whose traceback is in the log"}


async def test_a_huge_page_is_read_beside_the_loop(servers: list[ModelServer]) -> None:
    threads: dict[int, set[int]] = {}

    def note(arguments: Mapping[str, Any]) -> None:
        threads.setdefault(len(arguments["page"]), set()).add(threading.get_ident())

    told = Reports()
    small, huge = servers[:2]
    small.page = vllm_page(Load(1))
    huge.page = vllm_page(Load(2)) + b"# more\n" * (MAX_INLINE_BYTES // 7)
    with observe_calls(read_page, note):
        async with Scraper(told, PATIENT) as scraper:
            scraper.update(endpoints(small, huge))
            await told.queued(small, 1)
            await told.queued(huge, 2)
    assert threads.pop(min(threads)) == {threading.get_ident()}
    assert threading.get_ident() not in set().union(*threads.values())
