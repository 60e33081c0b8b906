"""The SDK against a gateway that really listens, through both of its ways in."""

import asyncio
import hashlib

import pytest

from tests.fakes.counting_llm import SteppedLlm
from tests.flow.open_gateway import ON_ANY_PORT, Opened, open_gateway
from tests.within import within
from tg_base.config import ApiKey, GatewayConfig
from tg_client import Flow, Sampling, TgClient
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TgError
from tg_schema.errors import BadRequest, NotFound, Timeout, Unauthorized, Unavailable

TOKEN = "open-sesame-0123456789"
LOCKED = GatewayConfig(
    port=0, drain=0.05, auth="on", keys=(ApiKey(name="t", sha256=hashlib.sha256(TOKEN.encode()).hexdigest()),)
)


async def test_a_whole_answer(flow: Flow, opened: Opened) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=5)
    result = await flow.text_completion("be brief", "3", model="counting", sampling=sampling)
    assert (result.text, result.in_token, result.out_token) == ("0 1 2 ", 7, 3)
    assert (result.model, result.finish_reason) == ("counting", "stop")
    assert opened.llm.requests == [TextCompletionRequest("be brief", "3", False, "counting", sampling)]


async def test_each_chunk_comes_before_the_next_is_made(flow: Flow, opened: Opened) -> None:
    opened.llm.step = asyncio.Semaphore(0)
    async with flow.text_completion_stream("", "3") as chunks:
        for number in range(2):
            opened.llm.step.release()
            chunk = await anext(chunks)
            assert (chunk.response, opened.llm.generated) == (f"{number} ", number + 1)
        opened.llm.step.release()
        last = [chunk async for chunk in chunks][-1]
        assert (last.end_of_stream, last.in_token, last.out_token, last.finish_reason) == (True, 7, 3, "stop")
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)


async def test_prompts(flow: Flow) -> None:
    variables = {"name": "Ö", "list": [1, None], "quoted": 'a"b'}
    result = await flow.prompt("text", variables)
    assert result.text == 'name="Ö" list=[1,null] quoted="a\\"b" '
    assert (result.in_token, result.out_token, result.object) == (2, 3, None)
    async with flow.prompt_stream("text", variables) as chunks:
        records = [chunk async for chunk in chunks]
    assert "".join(record.text or "" for record in records) == result.text
    assert records[-1].end_of_stream
    assert (await flow.prompt("object", {"a": 1})).object == {"a": "1"}


async def test_a_variable_that_json_cannot_say(flow: Flow) -> None:
    with pytest.raises(BadRequest, match="the variable x has a value"):
        await flow.prompt("text", {"x": object()})


@pytest.mark.parametrize("prompt", ["\udc80", "half \ud800"])
async def test_a_text_that_is_not_unicode(flow: Flow, prompt: str) -> None:
    with pytest.raises(BadRequest, match="not Unicode"):
        await flow.text_completion("", prompt)
    with pytest.raises(BadRequest, match="JSON cannot represent"):
        await flow.text_completion("", "1", schema={"x": object()})


async def test_a_flow_that_is_none(opened: Opened) -> None:
    async with TgClient(opened.gateway.url) as client:
        for flow in ("", "..", "\udc80"):
            with pytest.raises(BadRequest, match="the flow's id"):
                await client.flow(flow).text_completion("", "1")


async def test_a_client_without_a_block_is_open_until_it_is_closed(opened: Opened) -> None:
    client = TgClient(opened.gateway.url)
    flow = await asyncio.to_thread(client.flow)
    assert (await flow.text_completion("", "1")).text == "0 "
    await client.close()
    await client.close()
    for late in (flow.text_completion("", "1"), client.models(), client.socket().__aenter__(), client.__aenter__()):
        with pytest.raises(BadRequest, match="closed: ask inside `async with"):
            await late
    with pytest.raises(BadRequest, match="closed: ask inside `async with"):
        client.flow()


@pytest.mark.parametrize("read", [0, 2])
async def test_leaving_early_stops_the_model(flow: Flow, opened: Opened, read: int) -> None:
    opened.llm.step = asyncio.Semaphore(0)
    async with flow.text_completion_stream("", "1000") as chunks:
        await opened.llm.started.wait()
        for _ in range(read):
            opened.llm.step.release()
            await anext(chunks)
    await within(1, opened.llm.stopped.wait())
    assert opened.llm.generated == read


async def test_a_cancelled_caller_stops_the_model(flow: Flow, opened: Opened) -> None:
    opened.llm.step = asyncio.Semaphore(1)
    asking = asyncio.create_task(flow.text_completion("", "1000"))
    await opened.llm.started.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await within(1, opened.llm.stopped.wait())
    assert opened.llm.generated <= 1


async def test_the_deadline_stops_both_ends(flow: Flow, opened: Opened) -> None:
    opened.llm.step = asyncio.Semaphore(1)
    with pytest.raises(Timeout, match=r"no answer came within 0\.2 s"):
        await flow.text_completion("", "9", timeout=0.2)
    await within(1, opened.llm.stopped.wait())


@pytest.mark.parametrize("streaming", [False, True])
async def test_errors_are_of_the_closed_set(flow: Flow, streaming: bool) -> None:
    async def ask(request: TextCompletionRequest) -> TgError:
        with pytest.raises(TgError) as raised:
            async with flow.records(TEXT_COMPLETION, request) as records:
                await anext(records)
        return raised.value

    missing = await ask(TextCompletionRequest(prompt="", streaming=streaming))
    assert isinstance(missing, BadRequest)
    assert "prompt is missing" in missing.message
    unknown = await ask(TextCompletionRequest(prompt="1", model="nope", streaming=streaming))
    assert isinstance(unknown, NotFound)
    with pytest.raises(NotFound, match="no template has this id"):
        await flow.prompt("nope")


async def test_an_unknown_flow(opened: Opened) -> None:
    async with TgClient(opened.gateway.url) as client, client.socket() as socket:
        for flow in (client.flow("no/pe"), socket.flow("no/pe")):
            with pytest.raises(NotFound, match="no flow has this id; there are: default"):
                await flow.text_completion("", "1")


async def test_a_hundred_streams_side_by_side_keep_their_words(flow: Flow) -> None:
    async def words(count: int) -> str:
        async with flow.text_completion_stream("", str(count)) as chunks:
            return "".join([chunk.response or "" async for chunk in chunks])

    counts = range(1, 101)
    answers = await asyncio.gather(*map(words, counts))
    assert answers == ["".join(f"{number} " for number in range(count)) for count in counts]


async def test_a_cancelled_stream_leaves_the_others_on_its_socket(opened: Opened) -> None:
    opened.llm.step = asyncio.Semaphore(1)
    async with TgClient(opened.gateway.url) as client, client.socket() as socket:
        flow = socket.flow()
        async with flow.text_completion_stream("", "2") as kept:
            assert (await anext(kept)).response == "0 "
            opened.llm.started.clear()
            async with flow.text_completion_stream("", "1000"):
                await opened.llm.started.wait()
            await within(1, opened.llm.stopped.wait())
            opened.llm.step.release()
            rest = [chunk async for chunk in kept]
            assert "".join(chunk.response or "" for chunk in rest) == "1 "
            assert rest[-1].end_of_stream


async def test_a_token_from_argument_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_gateway(LOCKED) as opened:
        url = opened.gateway.url
        async with TgClient(url, token=TOKEN) as client, client.socket() as socket:
            assert (await client.flow().text_completion("", "1")).text == "0 "
            assert (await socket.flow().text_completion("", "1")).text == "0 "
        monkeypatch.setenv("TOKENGRID_TOKEN", TOKEN)
        monkeypatch.setenv("TOKENGRID_URL", url)
        async with TgClient() as client:
            assert (await client.flow().text_completion("", "1")).text == "0 "


async def test_a_gateway_without_tls_is_not_blamed_for_its_certificate() -> None:
    async with open_gateway() as opened, TgClient(opened.gateway.url.replace("http:", "https:"), retries=0) as client:
        with pytest.raises(Unavailable, match="does not speak TLS as it should; check the URL"):
            await client.flow().text_completion("", "1")
        with pytest.raises(Unavailable, match="does not speak TLS as it should; check the URL"):
            async with client.socket():
                pass


async def test_trustgraphs_variables_are_read_where_ours_are_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKENGRID_URL", "TOKENGRID_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    async with open_gateway(LOCKED) as opened:
        monkeypatch.setenv("TRUSTGRAPH_URL", opened.gateway.url)
        monkeypatch.setenv("TRUSTGRAPH_TOKEN", TOKEN)
        async with TgClient() as client, client.socket() as socket:
            assert (await client.flow().text_completion("", "1")).text == "0 "
            assert (await socket.flow().text_completion("", "1")).text == "0 "
        monkeypatch.setenv("TOKENGRID_TOKEN", "another")
        async with TgClient() as client:
            with pytest.raises(Unauthorized, match="needs a valid token; set TOKENGRID_TOKEN"):
                await client.flow().text_completion("", "1")
        monkeypatch.setenv("TOKENGRID_URL", "http://127.0.0.1:9/")
        async with TgClient(retries=0) as client:
            with pytest.raises(Unavailable):
                await client.flow().text_completion("", "1")


@pytest.mark.parametrize("token", [None, "wrong"])
async def test_a_wrong_token_is_refused_at_both_doors(token: str | None) -> None:
    async with open_gateway(LOCKED) as opened, TgClient(opened.gateway.url, token=token) as client:
        with pytest.raises(Unauthorized):
            await client.flow().text_completion("", "1")
        with pytest.raises(Unauthorized, match="TOKENGRID_TOKEN"):
            async with client.socket():
                pass


async def test_a_gateway_that_leaves_ends_the_streams_on_its_socket() -> None:
    llm = SteppedLlm(steps=1)
    async with open_gateway(replace_drain(0.0), llm=llm) as opened:
        client = TgClient(opened.gateway.url, retries=0)
        await client.__aenter__()
        flow = client.flow()
        stream = flow.text_completion_stream("", "1000")
        chunks = await stream.__aenter__()
        assert (await anext(chunks)).response == "0 "
    with pytest.raises(Unavailable):
        await anext(chunks)
    await stream.__aexit__(None, None, None)
    with pytest.raises(Unavailable, match="start one with tg-serve"):
        await flow.text_completion("", "1")
    await client.__aexit__(None, None, None)


def replace_drain(seconds: float) -> GatewayConfig:
    return GatewayConfig(port=ON_ANY_PORT.port, drain=seconds)
