"""The SDK's blocking twin, from a thread of its own beside the gateway's loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from tests.flow.open_gateway import Opened, open_gateway
from tests.within import within
from tg_client import SyncFlow, SyncTgClient
from tg_schema.errors import BadRequest, NotFound, Timeout, Unavailable

T = TypeVar("T")


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    async with open_gateway() as opened:
        yield opened


@pytest.fixture(params=["rest", "socket"])
def asked(request: pytest.FixtureRequest, opened: Opened) -> Callable[[Callable[[SyncFlow], T]], T]:
    """Runs blocking code with a flow."""

    def ask(work: Callable[[SyncFlow], T]) -> T:
        with SyncTgClient(opened.gateway.url) as client:
            if request.param == "rest":
                return work(client.flow())
            with client.socket() as socket:
                return work(socket.flow())

    return ask


Asked = Callable[[Callable[[SyncFlow], T]], T]


async def test_whole_answers(asked: Asked[object]) -> None:
    def work(flow: SyncFlow) -> None:
        result = flow.text_completion("be brief", "3")
        assert (result.text, result.out_token, result.finish_reason) == ("0 1 2 ", 3, "stop")
        assert flow.prompt("text", {"a": 1}).text == "a=1 "
        with pytest.raises(NotFound, match="no template"):
            flow.prompt("nope")

    await asyncio.to_thread(asked, work)


async def test_streams(asked: Asked[object]) -> None:
    def work(flow: SyncFlow) -> None:
        with flow.text_completion_stream("", "5") as chunks:
            records = list(chunks)
        assert "".join(record.response or "" for record in records) == "0 1 2 3 4 "
        assert records[-1].end_of_stream
        with flow.prompt_stream("text", {"a": 1}) as parts:
            assert "".join(part.text or "" for part in parts) == "a=1 "
        with pytest.raises(BadRequest, match="prompt is missing"), flow.text_completion_stream("", "") as chunks:
            list(chunks)

    await asyncio.to_thread(asked, work)


async def test_leaving_early_stops_the_model(asked: Asked[object], opened: Opened) -> None:
    opened.llm.step = asyncio.Semaphore(1)

    def work(flow: SyncFlow) -> str | None:
        with flow.text_completion_stream("", "1000") as chunks:
            for chunk in chunks:
                return chunk.response
        return None

    assert await asyncio.to_thread(asked, work) == "0 "
    await within(1, opened.llm.stopped.wait())
    assert opened.llm.generated == 1


async def test_leaving_by_an_exception_passes_it_on(asked: Asked[object], opened: Opened) -> None:
    opened.llm.step = asyncio.Semaphore(0)

    def work(flow: SyncFlow) -> None:
        with flow.text_completion_stream("", "1000"):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await asyncio.to_thread(asked, work)


async def test_the_deadline(asked: Asked[object], opened: Opened) -> None:
    opened.llm.step = asyncio.Semaphore(0)
    with pytest.raises(Timeout):
        await asyncio.to_thread(asked, lambda flow: flow.text_completion("", "1", timeout=0.1))


async def test_many_threads_share_one_client(asked: Asked[object]) -> None:
    def work(flow: SyncFlow) -> list[str]:
        with ThreadPoolExecutor(8) as threads:
            return list(threads.map(lambda count: flow.text_completion("", str(count)).text, range(1, 17)))

    answers = await asyncio.to_thread(asked, work)
    assert answers == ["".join(f"{number} " for number in range(count)) for count in range(1, 17)]


async def test_nothing_stays_behind(opened: Opened) -> None:
    before = threading.active_count()

    def work() -> None:
        client = SyncTgClient(opened.gateway.url)
        with client:
            client.flow().text_completion("", "1")
        assert "tg-client" not in {thread.name for thread in threading.enumerate()}

    await asyncio.to_thread(work)
    assert threading.active_count() <= before + 1


def test_no_gateway() -> None:
    with (
        SyncTgClient("http://127.0.0.1:9/", retries=0) as client,
        pytest.raises(Unavailable, match="start one with tg-serve"),
    ):
        client.flow().text_completion("", "p")
