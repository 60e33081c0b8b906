"""The metrics' own port: no thread for a scraper, no place that a hanging one keeps, no traceback for a stranger."""

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager

import pytest
from aiohttp import ClientSession
from prometheus_client import REGISTRY, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from tests.free_port import free_port
from tg_base.bus.memory import MemoryBus
from tg_base.protocol import Presence
from tg_base.server import Host, Readiness
from tg_gateway.metrics_page import MAX_CONNECTIONS, metrics_page
from tg_gateway.telemetry.metrics import MAX_QUICK_SAMPLES
from tg_schema.errors import Unavailable
from tg_schema.topics import Topics

ASK = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def find_nothing() -> tuple[str, ...]:
    return ()


def page_at(
    port: int, find_missing: Callable[[], Awaitable[tuple[str, ...]]] = find_nothing
) -> AbstractAsyncContextManager[int]:
    return metrics_page("127.0.0.1", port, find_hosts=lambda: ("metrics.example",), find_missing=find_missing)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    found = free_port()
    async with page_at(found):
        yield found


async def scraped(port: int) -> str:
    async with ClientSession() as http, asyncio.timeout(10), http.get(f"http://127.0.0.1:{port}/metrics") as page:
        assert (page.status, page.content_type) == (200, "text/plain")
        return await page.text()


@pytest.mark.parametrize("said", [b"", ASK[:20], ASK, ASK * 200])
async def test_a_hanging_scraper_holds_neither_threads_nor_others(port: int, said: bytes) -> None:
    before = threading.active_count()
    big = Gauge("tg_test_big", "Makes the page longer than any buffer", ["name"])
    for number in range(2000):
        big.labels(f"{number:0>200}").set(1)
    hanging = []
    try:
        for _ in range(2 * MAX_CONNECTIONS):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(sock, said)
            hanging.append(sock)
            await asyncio.sleep(0)
        assert "tg_test_big" in await scraped(port)
        # One writes the long page for all. On a loaded machine a second one does, once that page is no longer fresh.
        assert threading.active_count() <= before + 2
    finally:
        REGISTRY.unregister(big)
        for sock in hanging:
            sock.close()


async def test_no_label_ends_the_page_for_prometheus(port: int) -> None:
    odd = Gauge("tg_test_odd", "Labels of others", ["name"])
    odd.labels("a\0b\r\x1b").set(1)
    try:
        page = await scraped(port)
    finally:
        REGISTRY.unregister(odd)
    assert 'tg_test_odd{name="ab"}' in page
    assert page.replace("\n", "").isprintable()


@pytest.mark.parametrize("path", ["/metrics", "/instances", "/health", "/live", "/ready", "/nothing"])
@pytest.mark.parametrize(
    ("headers", "admitted"),
    [
        ({"Host": "evil.example"}, False),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, False),
        ({"Host": "localhost", "Origin": "http://evil.example"}, False),
        ({"Host": "metrics.example:9100"}, True),
        ({"Host": "10.0.0.1"}, True),
        ({}, True),
    ],
)
async def test_pages_of_other_names_read_nothing_and_unknown_paths_are_not_found(
    port: int, path: str, headers: dict[str, str], admitted: bool
) -> None:
    async with ClientSession() as http, http.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer:
        assert answer.status == (403 if not admitted else 404 if path == "/nothing" else 200)
        assert admitted or "add the name to hosts" in await answer.text()


async def test_a_process_is_ready_once_it_serves_until_it_leaves_while_its_bus_answers() -> None:
    bus, state = MemoryBus(), Readiness()

    async def look() -> tuple[int, list[str]]:
        """On a page of its own, which has no answer from before."""
        async with (
            page_at(0, state.find_missing) as port,
            ClientSession() as http,
            http.get(f"http://127.0.0.1:{port}/ready") as answer,
        ):
            return answer.status, (await answer.json())["missing"]

    assert await look() == (503, ["the process is starting"])
    async with Host(bus, Topics("public/default")) as host:
        state.bus, state.host, state.stage = bus, host, ""
        assert await look() == (503, ["no service runs here; the log says why"])
        host.add("p", lambda: Presence("p", (), 0, 0))
        assert await look() == (200, [])
        await bus.aclose()
        status, missing = await look()
        assert (status, missing[0]) == (503, "the bus does not answer")


async def test_strangers_leave_no_traceback(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    for said in (b"\x16\x03\x01\x02\x00\x01\x00", b"\x00\r\n\r\n", b"GET / HTTP/9\r\n\r\n", ASK):
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.sendall(said)
            await asyncio.sleep(0)
    await scraped(port)
    assert capfd.readouterr() == ("", "")


class Traced(float):
    """A number that notes in which thread it was written."""

    threads: set[int]

    @override
    def __float__(self) -> float:
        self.threads.add(threading.get_ident())
        return 1.0


class Series(Collector):
    """A metric of so many series."""

    def __init__(self, number: int, name: str = "tg_test_series") -> None:
        self.number, self.name, self.threads = number, name, set[int]()
        self.on_read: Callable[[], None] = lambda: None

    @override
    def collect(self) -> Iterable[GaugeMetricFamily]:
        self.on_read()
        value = Traced()
        value.threads = self.threads
        family = GaugeMetricFamily(self.name, "Of many names", labels=["name"])
        for number in range(self.number):
            family.add_metric([str(number)], value)
        yield family


@pytest.mark.parametrize("number", [MAX_QUICK_SAMPLES, MAX_QUICK_SAMPLES + 1])
async def test_a_metric_of_many_names_does_not_hold_the_event_loop(port: int, number: int) -> None:
    series = Series(number)
    REGISTRY.register(series)
    series.threads.clear()
    try:
        first, second = await asyncio.gather(scraped(port), scraped(port))
    finally:
        REGISTRY.unregister(series)
    assert first.count("\ntg_test_series{") == number
    assert first == second
    assert len(series.threads) == 1
    assert (threading.get_ident() in series.threads) is (number <= MAX_QUICK_SAMPLES)


async def test_others_have_their_turns_while_metrics_of_some_names_each_are_read(port: int) -> None:
    some = [Series(MAX_QUICK_SAMPLES, f"tg_test_{number}") for number in range(20)]
    for each in some:
        REGISTRY.register(each)
    turns, seen = 0, list[int]()

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    for each in some:
        each.on_read = lambda: seen.append(turns)
    counting = asyncio.create_task(count_turns())
    try:
        await scraped(port)
    finally:
        counting.cancel()
        for each in some:
            REGISTRY.unregister(each)
    assert len(seen) == len(some)
    # Two of them are more than a turn may hold.
    assert len(set(seen)) >= len(some) / 2


async def test_a_port_that_is_taken(port: int) -> None:
    with pytest.raises(Unavailable, match="take another port"):
        async with page_at(port):
            pass
