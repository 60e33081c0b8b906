"""The SDK's blocking twin; and the SDK outside its block, loop or process, and interrupted: one error that says so."""

import asyncio
import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

import pytest

from tests.fakes.unreading_socket import unreading_socket
from tests.flow.open_gateway import Opened
from tests.within import within
from tg_client import SyncFlow, SyncTgClient, TgClient
from tg_schema import Sampling
from tg_schema.errors import BadRequest, NotFound, Timeout

T = TypeVar("T")


async def test_a_blocking_client_without_a_block_is_open_until_it_is_closed(opened: Opened) -> None:
    def work() -> None:
        client = SyncTgClient(opened.gateway.url)
        flow = client.flow()
        stream = flow.text_completion_stream("", "3")
        assert flow.text_completion("", "3").text == "0 1 2 "
        client.close()
        client.close()
        late_calls = (lambda: flow.text_completion("", "3"), client.flow, client.models, stream.__enter__)
        for late in (*late_calls, client.__enter__):
            with pytest.raises(BadRequest, match="closed: ask inside `with"):
                late()

    await asyncio.to_thread(work)


async def test_another_loop_is_refused_before_anything_is_sent(opened: Opened) -> None:
    async def ask(client: TgClient) -> str:
        return (await client.flow().text_completion("", "3", timeout=1)).text

    async with TgClient(opened.gateway.url) as client:
        assert await ask(client) == "0 1 2 "
        with pytest.raises(BadRequest, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(ask(client)))
        assert await ask(client) == "0 1 2 "


async def test_a_forked_process_is_refused_and_its_parent_goes_on(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        with SyncTgClient(opened.gateway.url) as client:
            flow = client.flow()
            with monkeypatch.context() as forked:
                # What a child sees: it has the same objects under another id, and no other thread.
                forked.setattr("tg_client.loop_thread.os.getpid", lambda: 1)
                with pytest.raises(BadRequest, match="forked"):
                    flow.text_completion("", "3")
            assert flow.text_completion("", "3").text == "0 1 2 "

    await asyncio.to_thread(work)


def test_ctrl_c_before_the_first_token_is_a_keyboard_interrupt() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool, ExitStack() as stack:

        def swallow() -> None:
            taken, _ = listening.accept()
            with taken, suppress(ConnectionResetError):
                taken.recv(1000)
                os.kill(os.getpid(), signal.SIGINT)
                # Until the client has closed its connection.
                while taken.recv(1000):
                    pass

        # Python's own handler, which a parent that ignores the signal takes away.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        stack.callback(signal.signal, signal.SIGINT, before)
        swallowing = pool.submit(swallow)
        with SyncTgClient(f"http://127.0.0.1:{listening.getsockname()[1]}/") as client:
            with pytest.raises(KeyboardInterrupt), client.flow().text_completion_stream("", "1000") as chunks:
                list(chunks)
            swallowing.result(30)


async def test_ctrl_c_while_the_loop_is_given_its_work_ends_that_work(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = asyncio.run_coroutine_threadsafe

    def submit_interrupted(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
        monkeypatch.undo()
        submit(work, loop)
        raise KeyboardInterrupt

    def read(client: SyncTgClient) -> None:
        with client.flow().text_completion_stream("", "100000") as chunks:
            next(chunks)
            monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", submit_interrupted)
            list(chunks)

    def work() -> None:
        with SyncTgClient(opened.gateway.url) as client, pytest.raises(KeyboardInterrupt):
            read(client)

    await asyncio.to_thread(work)
    await asyncio.wait_for(opened.llm.stopped.wait(), 30)


async def test_a_number_that_json_lacks_is_refused_and_does_not_become_null(opened: Opened) -> None:
    async with TgClient(opened.gateway.url) as client:
        flow = client.flow()
        for wrong in (math.inf, [-math.inf], {"a": (math.nan,)}):
            with pytest.raises(BadRequest, match="the variable x has a value that JSON cannot represent"):
                await flow.prompt("text", {"x": wrong})
        with pytest.raises(BadRequest, match="infinite or NaN"):
            await flow.text_completion("", "3", sampling=Sampling(temperature=math.nan))
        assert (await flow.prompt("text", {"x": [None, 1e308]})).text == "x=[null,1e308] "


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
async def test_a_timeout_that_is_no_time_is_refused(opened: Opened, seconds: float) -> None:
    async with TgClient(opened.gateway.url) as client, client.socket() as socket:
        for flow in (client.flow(), socket.flow()):
            with pytest.raises(BadRequest, match="must be seconds above 0"):
                await flow.text_completion("", "3", timeout=seconds)
        with pytest.raises(BadRequest, match="must be seconds above 0"):
            await client.models(timeout=seconds)
    assert not opened.llm.requests


async def test_a_stream_is_begun_once(opened: Opened) -> None:
    async with TgClient(opened.gateway.url) as client:
        stream = client.flow().text_completion_stream("", "3")
        async with stream as chunks:
            assert "".join([chunk.response or "" async for chunk in chunks]) == "0 1 2 "
        with pytest.raises(BadRequest, match="this stream was begun before: make the call again for another one"):
            await stream.__aenter__()

    def work() -> None:
        with SyncTgClient(opened.gateway.url) as client:
            stream, dialog = client.flow().text_completion_stream("", "3"), client.flow().agent_stream("x")
            with stream as chunks:
                assert "".join(chunk.response or "" for chunk in chunks) == "0 1 2 "
            with pytest.raises(BadRequest, match="begun before"):
                stream.__enter__()
            with dialog:
                pass
            with pytest.raises(BadRequest, match="begun before: call agent_stream again"):
                dialog.__enter__()

    await asyncio.to_thread(work)


async def test_a_socket_that_takes_no_request_ends_in_our_timeout() -> None:
    async with unreading_socket() as url, TgClient(url) as client, client.socket() as socket:
        large = "x" * 16 * 1024 * 1024
        with pytest.raises(Timeout, match="no answer came"):
            await socket.flow().text_completion("", large, timeout=0.05)


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
