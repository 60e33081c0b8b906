"""The SDK and the commands go on by themselves: their connections are cut at any byte, and they have one text."""

import asyncio
import random
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from yarl import URL

from tests.fakes.answers_llm import AnswersLlm
from tests.fakes.counting_llm import SteppedLlm, release
from tests.fakes.cutting_proxy import CuttingProxy
from tests.fakes.failing_llm import FailingLlm
from tests.fakes.scripted_agent import ScriptedAgent
from tests.flow.command import ended, out_of, ran, started
from tests.flow.kept_streams import DEADLINE, MANY, Pair, open_agent_pair, open_keeping, open_pair, read_all
from tests.flow.open_gateway import another_gateway, open_gateway
from tests.until import AT_ONCE_SECONDS, until
from tg_base.llm import LlmChunk
from tg_client import Answer, Flow, RecordStream, SyncTgClient, TgClient
from tg_client.transport.retries import OnRetry
from tg_schema import TEXT_COMPLETION, TextCompletionResponse, TgError
from tg_schema.errors import BadRequest, IncompleteStream, NotFound, Timeout

DOORS = pytest.mark.parametrize("door", ["rest", "socket"])
CUTS = 4
WORDS = 40
TEXT = "".join(f"{number} " for number in range(WORDS))
LAST = LlmChunk(in_token=1, out_token=1, finish_reason="stop")
ALL = 1000
"""Retries that no draw uses up."""


@asynccontextmanager
async def asking(
    url: str, door: str = "rest", *, retries: int | None = ALL, on_retry: OnRetry | None = None, timeout: float = 300.0
) -> AsyncIterator[tuple[TgClient, Flow]]:
    """A client, and the flow that it asks by a door."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            TgClient(url, retries=retries, on_retry=on_retry, timeout=timeout, token="")
        )
        socket = await stack.enter_async_context(client.socket()) if door == "socket" else client
        yield client, socket.flow()


@asynccontextmanager
async def cutting(it: Pair, cuts: Iterator[int]) -> AsyncIterator[CuttingProxy]:
    """A proxy before both gateways."""
    ports = [port_of(http) for http in (it.one, it.other)]
    async with CuttingProxy.before(lambda: random.choice(ports), cuts) as proxy:
        yield proxy


def port_of(http: object) -> int:
    base: URL = http._base_url  # type: ignore[attr-defined]
    assert base.port is not None
    return base.port


def draw_cuts(count: int = CUTS) -> Iterator[int]:
    """Any bytes. Before the first one of a record nothing is gained, and the pauses grow."""
    return iter([random.choice((0, *(random.randrange(700) for _ in range(4)))) for _ in range(count)])


async def say(it: Pair, words: int = WORDS) -> None:
    """Let the model speak, now fast, now slowly."""
    for _ in range(words):
        it.step(1)
        await asyncio.sleep(random.random() / 20)


async def text_of(stream: RecordStream[TextCompletionResponse]) -> str:
    """The text that a reader has."""
    async with asyncio.timeout(DEADLINE * 2), stream as records:
        return "".join([record.response or "" async for record in records])


async def read_into(texts: list[str], stream: RecordStream[TextCompletionResponse]) -> None:
    """Add the texts that come before an error, too."""
    async with stream as records:
        while (record := await anext(records, None)) is not None:
            texts.append(record.response or "")


@DOORS
async def test_any_cuts_give_the_one_text_of_one_call(door: str) -> None:
    told = list[TgError]()
    async with (
        open_pair() as it,
        cutting(it, draw_cuts()) as proxy,
        asking(proxy.url, door, on_retry=lambda error, _: told.append(error)) as (_, flow),
    ):
        saying = asyncio.create_task(say(it))
        stream = flow.text_completion_stream("", str(WORDS), keep="10m")
        assert await text_of(stream) == TEXT
        await saying
        assert (proxy.cut, len(it.llm.requests), it.llm.generated) == (CUTS, 1, WORDS)
        assert len(told) >= CUTS
        assert (stream.position.over, stream.position.goes_on) == (True, False)
        assert f"id: {stream.position.after}\n".encode() in await read_all(it.one, str(stream.position.stream))


async def test_what_its_flow_keeps_is_resumed_without_being_asked_for() -> None:
    llm = SteppedLlm()
    async with open_keeping(llm) as http:
        port = port_of(http)
        async with (
            CuttingProxy.before(lambda: port, draw_cuts(2)) as proxy,
            asking(proxy.url) as (_, flow),
        ):
            saying = asyncio.create_task(say(Pair(llm, http, http)))
            assert await text_of(flow.text_completion_stream("", str(WORDS))) == TEXT
            await saying
            assert (proxy.cut, len(llm.requests)) == (2, 1)


@DOORS
async def test_a_gateway_that_ends_leaves_its_readers_to_another_one(door: str) -> None:
    """Its error has no number, so it is not the stream's."""
    llm, told = SteppedLlm(), list[TgError]()
    async with AsyncExitStack() as stack, open_gateway(llm=llm) as it:
        ending = await stack.enter_async_context(AsyncExitStack())
        gateway = await ending.enter_async_context(another_gateway(it.bus))
        ports = [URL(gateway.url).port or 0, it.address[1]]
        proxy = await stack.enter_async_context(CuttingProxy.before(lambda: ports[0], iter([])))
        _, flow = await stack.enter_async_context(asking(proxy.url, door, on_retry=lambda error, _: told.append(error)))
        async with flow.text_completion_stream("", "3", keep="10m") as records:
            llm.step.release()
            text = (await anext(records)).response or ""
            del ports[0]
            await ending.aclose()
            release(llm.step, 2)
            text += "".join([record.response or "" async for record in records])
        assert (text, len(llm.requests), len(told) > 0) == ("0 1 2 ", 1, True)


@DOORS
async def test_what_comes_at_once_is_kept_however_large_it_is(door: str) -> None:
    """More than may wait for the bus: it is one batch, within which no part of the log may end."""
    llm = AnswersLlm((LlmChunk("0"), *(LlmChunk("x" * 100) for _ in range(1000)), LlmChunk("y" * 1_000_000), LAST))
    llm.model = "counting"
    async with open_gateway(instead=llm) as it, asking(it.gateway.url, door) as (_, flow):
        text = await text_of(flow.text_completion_stream("", "p", keep="10m"))
        assert text == "0" + "x" * 100_000 + "y" * 1_000_000
        assert len(llm.requests) == 1


async def test_without_retries_the_stream_goes_on_for_another_reader() -> None:
    async with (
        open_pair() as it,
        cutting(it, iter([200])) as proxy,
        asking(proxy.url, retries=0) as (client, flow),
    ):
        it.step(WORDS)
        got = list[str]()
        stream = flow.text_completion_stream("", str(WORDS), keep=600)
        with pytest.raises(IncompleteStream):
            await read_into(got, stream)
        with pytest.raises(BadRequest, match="begun before"):
            await stream.__aenter__()
        assert stream.position.goes_on
        rest = client.attach(TEXT_COMPLETION, str(stream.position.stream), stream.position.after)
        assert "".join(got) + await text_of(rest) == TEXT
        # There is no more of it, which is no error.
        assert await text_of(client.attach(TEXT_COMPLETION, str(stream.position.stream), rest.position.after)) == ""
        with pytest.raises(NotFound):
            await text_of(client.attach(TEXT_COMPLETION, "ks-1"))
        assert len(it.llm.requests) == 1


@DOORS
@pytest.mark.parametrize("read", [0, 1])
async def test_leaving_stops_the_model(door: str, read: int) -> None:
    async with open_pair() as it, asking(str(it.one._base_url), door) as (_, flow):
        async with flow.text_completion_stream("", MANY, keep="10m") as records:
            await until(lambda: bool(it.llm.requests))
            it.step(read)
            for _ in range(read):
                await anext(records)
        await asyncio.wait_for(it.llm.stopped.wait(), AT_ONCE_SECONDS)
        assert it.llm.generated == read


async def test_what_is_left_on_a_socket_that_is_lost_just_now_is_stopped_by_http() -> None:
    """Its cancel cannot leave, and its reader does not know yet."""
    async with open_pair() as it, asking(str(it.one._base_url), "socket") as (_, flow):
        async with flow.text_completion_stream("", MANY, keep="10m") as records:
            it.step(1)
            await anext(records)
            flow._door._socket._socket._writer.transport.abort()  # type: ignore[attr-defined]
        await asyncio.wait_for(it.llm.stopped.wait(), AT_ONCE_SECONDS)
        assert it.llm.generated == 1


@pytest.mark.parametrize("stops", [True, False])
async def test_leaving_stops_what_was_resumed_unless_it_is_another_ones(stops: bool) -> None:
    async with (
        open_pair() as it,
        asking(str(it.other._base_url)) as (client, _),
        asking(str(it.one._base_url)) as (_, flow),
        flow.text_completion_stream("", "3", keep=60) as first,
    ):
        it.step(1)
        await anext(first)
        async with client.attach(TEXT_COMPLETION, str(first.position.stream), stops=stops) as records:
            assert (await anext(records)).response == "0 "
        assert it.llm.stopped.is_set() is stops
        if not stops:
            it.step(2)
            assert "".join([each.response or "" async for each in first]) == "1 2 "


async def test_who_waits_no_longer_stops_the_model() -> None:
    async with open_pair() as it, asking(str(it.one._base_url), timeout=0.5) as (_, flow):
        with pytest.raises(Timeout):
            await text_of(flow.text_completion_stream("", MANY, keep="10m"))
        assert it.llm.stopped.is_set()


@DOORS
async def test_the_failure_of_the_model_is_final_and_that_of_a_reader_is_not(door: str) -> None:
    told = list[TgError]()
    async with (
        open_pair(llm=FailingLlm()) as it,
        asking(str(it.one._base_url), door, on_retry=lambda error, _: told.append(error)) as (_, flow),
    ):
        it.step(2)
        with pytest.raises(TgError):
            await text_of(flow.text_completion_stream("", "2", keep="10m"))
        assert (len(it.llm.requests), told) == (1, [])


@pytest.mark.parametrize("keep", [float("nan"), float("inf"), -1, "", "10", "1d", "1\u0661m"])
async def test_what_is_no_time_is_refused(keep: float | str) -> None:
    async with open_pair() as it, asking(str(it.one._base_url)) as (_, flow):
        with pytest.raises(BadRequest, match="keep"):
            await text_of(flow.text_completion_stream("", "1", keep=keep))
        assert not it.llm.requests


async def test_an_agent_is_resumed_too() -> None:
    agent = ScriptedAgent()
    async with open_agent_pair(agent) as (one, other):
        ports = [port_of(http) for http in (one, other)]
        async with (
            CuttingProxy.before(lambda: random.choice(ports), draw_cuts(3)) as proxy,
            asking(proxy.url) as (_, flow),
        ):
            dialog = flow.agent_stream("2 + 3?", keep="10m")
            async with dialog as events:
                answer = [event.content async for event in events if isinstance(event, Answer)]
            async with asking(str(one._base_url)) as (_, uncut):
                assert (await uncut.agent("2 + 3?")).answer == "".join(answer) == dialog.trace.answer
            assert dialog.position.over
    assert len(agent.requests) == 2


async def test_blocking_code_is_resumed_and_attaches() -> None:
    async with open_pair() as it, cutting(it, iter([100, 0, 150])) as proxy:
        it.step(WORDS)

        def read() -> tuple[str, str]:
            with SyncTgClient(proxy.url, retries=ALL) as client:
                stream = client.flow().text_completion_stream("", str(WORDS), keep="10m")
                with stream as records:
                    text = "".join(record.response or "" for record in records)
                with client.attach(TEXT_COMPLETION, str(stream.position.stream)) as again:
                    return text, "".join(record.response or "" for record in again)

        assert await asyncio.to_thread(read) == (TEXT, TEXT)
        assert len(it.llm.requests) == 1


LLM, PROMPT, AGENT, CHAT = "tg-invoke-llm", "tg-invoke-prompt", "tg-invoke-agent", "tg-chat"
KEEP = ("--keep", "10m")
CLOSED_PORT = 9


async def test_a_command_that_is_cut_prints_the_one_text() -> None:
    given = [f"n{number}:={number}" for number in range(WORDS)]
    terms = "".join(f"n{number}={number} " for number in range(WORDS))
    async with open_pair() as it:
        it.step(WORDS)
        for arguments, text in (((LLM, "", str(WORDS)), TEXT), ((PROMPT, "text", *given), terms)):
            async with cutting(it, draw_cuts(2)) as proxy:
                done = await ran(*arguments, *KEEP, "-u", proxy.url)
                assert (done.code, done.out, proxy.cut) == (0, f"{text}\n", 2), done.err
        assert len(it.llm.requests) == 1


async def test_a_chat_that_is_cut_has_the_one_text() -> None:
    async with open_pair() as it, cutting(it, draw_cuts(2)) as proxy:
        it.step(WORDS)
        done = await ran(CHAT, *KEEP, "-u", proxy.url, data=f"{WORDS}\n".encode())
        assert (done.code, done.out.strip(), len(it.llm.requests)) == (0, TEXT.strip(), 1), done.err


async def test_an_agent_that_is_cut_prints_the_one_answer() -> None:
    agent = ScriptedAgent()
    async with open_agent_pair(agent) as (one, other):
        ports = [port_of(http) for http in (one, other)]
        async with CuttingProxy.before(lambda: random.choice(ports), draw_cuts(2)) as proxy:
            done = await ran(AGENT, "2 + 3?", *KEEP, "-u", proxy.url)
        assert (done.code, len(agent.requests)) == (0, 1), done.err
        assert done.out == (await ran(AGENT, "2 + 3?", "-u", str(one._base_url))).out


async def test_ctrl_c_stops_the_model() -> None:
    async with open_pair() as it, cutting(it, iter([0])) as proxy:
        it.step(3)
        async with started(LLM, "", MANY, *KEEP, "-u", proxy.url) as process:
            # It was cut before, and has attached.
            await asyncio.wait_for(out_of(process).readuntil(b"2 "), 20)
            process.send_signal(signal.SIGINT)
            await asyncio.wait_for(it.llm.stopped.wait(), AT_ONCE_SECONDS)
            assert (await ended(process)).code == 130
        it.step(10)
        assert (it.llm.generated, proxy.cut) == (3, 1)


async def lose(it: Pair, after: int, *options: str) -> tuple[str, str]:
    """What a command prints whose gateways go away for good, after so many bytes of its stream."""
    ports = iter([port_of(it.one)])
    async with CuttingProxy.before(lambda: next(ports, CLOSED_PORT), iter([after])) as proxy:
        done = await ran(LLM, "", str(WORDS), *options, "-u", proxy.url)
    assert done.code == 1
    return done.out, done.err


async def test_what_a_command_has_lost_another_one_goes_on_with() -> None:
    async with open_pair() as it:
        it.step(WORDS)
        out, err = await lose(it, random.randrange(100, 1000), *KEEP)
        found = re.search(r"the answer goes on: (tg-invoke-llm) --attach (ks-\S+) --after (\S+)\n", err)
        assert found is not None, err
        options = ("--attach", found[2], "--after", found[3], "--show-usage")
        rest = await ran(found[1], *options, "-u", str(it.other._base_url))
        assert (out.removesuffix("\n") + rest.out, rest.code) == (f"{TEXT}\n", 0)
        assert f"Output tokens: {WORDS}" in rest.err
        again = await ran(LLM, "--attach", found[2], "-u", str(it.one._base_url))
        assert again.out == f"{TEXT}\n"
        assert len(it.llm.requests) == 1


async def test_what_is_not_kept_is_not_promised() -> None:
    async with open_pair() as it, CuttingProxy.before(lambda: CLOSED_PORT, iter([])) as proxy:
        done = await ran(LLM, "", "1", *KEEP, "-u", proxy.url)
        assert (done.code, "--attach" in done.err) == (1, False)
        gone = await ran(LLM, "--attach", "ks-1", "-u", str(it.one._base_url))
        assert (gone.code, "--attach" in gone.err) == (1, False)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--keep", "1d"), 1, "90s, 10m or 2h"),
        (("--keep", ""), 1, "90s, 10m or 2h"),
        (("--attach", "ks-1", "--after", "x"), 2, "'--after'"),
        (("--attach", "ks-1", "--after", "-2"), 2, "'--after'"),
    ],
)
@pytest.mark.parametrize("command", [LLM, PROMPT, AGENT])
async def test_what_is_no_value_is_refused(command: str, options: tuple[str, ...], code: int, said: str) -> None:
    done = await ran(command, "x", *options, "-u", "http://127.0.0.1:9")
    assert (done.code, said in done.err) == (code, True), done.err
