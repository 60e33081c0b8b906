"""Responses in the background that processes of the part `jobs` make, over a real broker: gateways and they die."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.connected.pipeline import Part, Pipeline
from tests.connected.test_background_responses import ask, generating
from tests.connected.test_kept_responses import sdk
from tests.fakes.live_openai import PIECE, LiveOpenAi, told
from tests.flow.background_asking import begin, gather, poll, until_told
from tests.flow.responses_stream import check_stream
from tg_client import TgClient

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

STREAMS = 20
GAP_SECONDS = 15.0
"""Seconds in which all go on after a death; the promise is 5, of a machine that is not loaded."""


async def until_known(gateway: Part, flow: str) -> None:
    """Until a gateway knows the process that makes the responses; before, it makes them itself."""
    async with TgClient(gateway.url, retries=0) as client, client.follow_live() as documents:
        async for document in documents:
            if any(
                each is not None and flow in each.queues and "jobs" in each.queues
                for each in document.processors.values()
            ):
                return
    raise AssertionError("the gateway has ended the events")


async def test_no_generation_stops_with_its_gateway(live_model: LiveOpenAi, line: Pipeline) -> None:
    """One is killed, and the other told to end."""
    await asyncio.gather(line.start("jobs"), line.start("text-completion"))
    gateways = await asyncio.gather(*(line.start("gateway") for _ in range(3)))
    await asyncio.gather(*(until_known(gateway, line.flow) for gateway in gateways))
    last = gateways.pop()
    prompts = [f"p{number}" for number in range(STREAMS)]
    names = list[str]()
    for number, prompt in enumerate(prompts):
        async with sdk(gateways[number % 2]) as client, await ask(client, prompt, stream=True) as stream:
            names.append(await begin(stream))
            await until_told(stream)
    gateways[0].process.kill()
    gateways[1].process.terminate()
    assert [await each.stopped(15) for each in gateways] == [-9, 0]
    said = [(await generating(live_model, prompt)).sent for prompt in prompts]
    await live_model.until(
        lambda: all(live_model.of(prompt)[0].sent > sent + 2 for prompt, sent in zip(prompts, said, strict=True)), 30
    )
    live_model.finish.set()
    async with sdk(last) as client:
        for name in names:
            final: Any = check_stream(await gather(await client.responses.retrieve(name, stream=True)))
            told(final["output"][0]["content"][0]["text"], whole=True)
            assert (await poll(client, name)).to_dict() == final
    assert [len(live_model.of(prompt)) for prompt in prompts] == [1] * STREAMS


async def until_piece(stream: Any, number: int) -> None:
    """Until this piece of the text was read, or a later one."""
    async for event in stream:
        if event.type == "response.output_text.delta" and int(PIECE.findall(event.delta)[-1][1]) >= number:
            return
    raise AssertionError("the stream has ended")


async def test_what_runs_goes_on_when_the_process_that_makes_it_dies(live_model: LiveOpenAi, line: Pipeline) -> None:
    """Killed, then told to end: another one goes on with the same generation, without a gap in the text."""
    jobs = await line.start("jobs")
    gateway, _ = await asyncio.gather(line.start("gateway"), line.start("text-completion"))
    await until_known(gateway, line.flow)
    async with sdk(gateway) as client, AsyncExitStack() as open_streams:
        asked = [await ask(client, f"p{number}", stream=True) for number in range(STREAMS)]
        streams = [await open_streams.enter_async_context(stream) for stream in asked]
        names = [await begin(stream) for stream in streams]
        for ends in (True, False):
            for stream in streams:
                await until_told(stream)
            other = await line.start("jobs")
            if ends:
                jobs.process.kill()
            else:
                jobs.process.terminate()
            died = asyncio.get_running_loop().time()
            said = [live_model.of(f"p{number}")[0].sent for number in range(STREAMS)]
            for stream, sent in zip(streams, said, strict=True):
                await until_piece(stream, sent + 1)
            gap = asyncio.get_running_loop().time() - died
            assert await jobs.stopped(15) == (-9 if ends else 0)
            jobs = other
            assert gap < GAP_SECONDS
        live_model.finish.set()
        for stream, name in zip(streams, names, strict=True):
            rest = await gather(stream)
            events = await gather(await client.responses.retrieve(name, stream=True))
            assert rest == events[-len(rest) :]
            final: Any = check_stream(events)
            assert final["error"] is None
            told(final["output"][0]["content"][0]["text"], whole=True)
    assert [len(live_model.of(f"p{number}")) for number in range(STREAMS)] == [1] * STREAMS
