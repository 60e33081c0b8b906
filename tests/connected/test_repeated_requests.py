"""Requests with an `Idempotency-Key`, over a real broker: at once at two gateways, cut, killed; one call each."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anthropic
import openai
import pytest
from aiohttp import ClientError, ClientResponse, ClientSession

from tests.connected.pipeline import Part, Pipeline
from tests.connected.test_kept_streams import STREAMS, ask, text_of
from tests.connected.test_responses_made_apart import until_known
from tests.fakes.live_openai import MODEL, PIECE, LiveOpenAi, told

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Both:
    """Two gateways, and a client of each."""

    gateways: tuple[Part, Part]
    http: tuple[ClientSession, ClientSession]


@asynccontextmanager
async def open_both(line: Pipeline, *, jobs: bool) -> AsyncIterator[Both]:
    """On one broker; `jobs`: whether another process makes the streams."""
    await asyncio.gather(line.start("text-completion"), *([line.start("jobs")] if jobs else []))
    one, other = await asyncio.gather(line.start("gateway"), line.start("gateway"))
    if jobs:
        await asyncio.gather(*(until_known(gateway, line.flow) for gateway in (one, other)))
    async with ClientSession(one.url) as first, ClientSession(other.url) as second:
        yield Both((one, other), (first, second))


async def read(response: ClientResponse, pieces: int | None) -> bytes:
    """What comes until there are so many pieces of text, or until the end."""
    got = b""
    while pieces is None or len(PIECE.findall(got.decode())) < pieces:
        more = await response.content.readany()
        if not more:
            break
        got += more
    return got


async def send(http: ClientSession, line: Pipeline, number: int, pieces: int | None = None) -> bytes:
    """Send a stream's request with its key, and read so much of the answer."""
    path, body = ask(line.flow, number)
    async with http.post(path, json=body, headers={"Idempotency-Key": f"key-{line.flow}-{number}"}) as response:
        assert response.status == 200, await response.text()
        return await read(response, pieces)


async def test_starts_at_one_moment_at_two_gateways_are_one_call(live_model: LiveOpenAi, line: Pipeline) -> None:
    async with open_both(line, jobs=False) as it:
        one, other = it.http
        sent = [
            [asyncio.create_task(send(http, line, number)) for http in (one, other, one, other)]
            for number in range(STREAMS)
        ]
        await live_model.until(lambda: len(live_model.generations) >= STREAMS, 60)
        live_model.finish.set()
        for each in sent:
            (answer,) = set(await asyncio.gather(*each))
            told(text_of(answer), whole=True)
        assert {await send(other, line, number) for number in range(3)} == {sent[n][0].result() for n in range(3)}
    assert [len(live_model.of(f"p{number}")) for number in range(STREAMS)] == [1] * STREAMS


async def test_who_is_cut_again_and_again_pays_once(live_model: LiveOpenAi, line: Pipeline) -> None:
    draw = random.Random()
    async with open_both(line, jobs=True) as it:

        async def repeat(number: int) -> bytes:
            for pieces in range(1, 8, 2):
                await send(draw.choice(it.http), line, number, pieces)
            return await send(draw.choice(it.http), line, number)

        answers = [asyncio.create_task(repeat(number)) for number in range(STREAMS)]
        await live_model.until(lambda: sum(each.sent > 8 for each in live_model.generations) >= STREAMS, 120)
        live_model.finish.set()
        for answer in await asyncio.gather(*answers):
            told(text_of(answer), whole=True)
    assert [len(live_model.of(f"p{number}")) for number in range(STREAMS)] == [1] * STREAMS


@pytest.mark.parametrize("jobs", [True, False])
async def test_whose_gateway_is_killed_joins_through_another(
    live_model: LiveOpenAi, line: Pipeline, jobs: bool
) -> None:
    """Also where that gateway made the streams itself: the other one adopts them."""
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(open_both(line, jobs=jobs))
        one, other = it.http
        begun = [asyncio.create_task(send(one, line, number)) for number in range(STREAMS)]
        await live_model.until(lambda: sum(each.sent > 2 for each in live_model.generations) >= STREAMS, 60)
        it.gateways[0].process.kill()
        assert await it.gateways[0].stopped(15) == -9
        for cut in await asyncio.gather(*begun, return_exceptions=True):
            assert isinstance(cut, ClientError)
        joined = [asyncio.create_task(send(other, line, number)) for number in range(STREAMS)]
        live_model.finish.set()
        for answer in await asyncio.gather(*joined):
            told(text_of(answer), whole=True)
    assert [len(live_model.of(f"p{number}")) for number in range(STREAMS)] == [1] * STREAMS


async def test_the_sdks_repeat_a_request_with_its_key(live_model: LiveOpenAi, line: Pipeline) -> None:
    """Cut in mid-stream, and sent again, by OpenAI's and Anthropic's."""
    async with open_both(line, jobs=False) as it:
        one, other = it.gateways
        for number, gateway in enumerate((one, other, one)):
            key = {"Idempotency-Key": f"sdk-{line.flow}"}
            async with openai.AsyncOpenAI(base_url=f"{gateway.url}v1", api_key="none") as client:
                stream = await client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "o"}], stream=True, extra_headers=key
                )
                text = ""
                async for chunk in stream:
                    text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                    if number < 2 and len(PIECE.findall(text)) > 1:
                        break
                await stream.close()
            async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key="none") as claude:
                said = ""
                async with claude.messages.stream(
                    model=MODEL,
                    max_tokens=99,
                    messages=[{"role": "user", "content": "a"}],
                    extra_headers={"Idempotency-Key": f"claude-{line.flow}"},
                ) as events:
                    async for piece in events.text_stream:
                        said += piece
                        if number < 2 and len(PIECE.findall(said)) > 1:
                            break
            if number == 1:
                live_model.finish.set()
        told(text, whole=True)
        told(said, whole=True)
    assert [len(live_model.of(prompt)) for prompt in ("o", "a")] == [1, 1]
