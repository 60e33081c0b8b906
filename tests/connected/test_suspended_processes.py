"""Gateways and processors that are suspended under live streams and go on: one end each, never a hole, never a wait.

The pauses run side by side, each with processes of its own, so that the longest is all that it takes.
"""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.connected.live_streams import LiveStreams, asked, live_streams
from tests.connected.pipeline import Part, Pipeline
from tests.fakes.live_openai import LiveOpenAi, told

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

PAUSES_SECONDS = (2, 5, 15)
SHORT_SECONDS = 2.5
"""A pause up to here is nobody's death: silence of 3.5 s is, and the last heartbeat may be a second old."""
COUNT = 32
"""Streams of each processor."""
MANY, QUICK_SECONDS = 64, 0.1
"""Streams of each gateway, and seconds between two pieces: a link that nobody acknowledges soon stops at its window."""
FEW = 8
BEGIN_SECONDS = 60.0
BOUND = 5.0
"""Seconds after the resume, or after a processor's last sign of life, in which everything has its end or its answer."""
FOUND_SECONDS = 10.0
"""Seconds after which a request has come to a living processor, also if the broker gave it to the dead one again."""


async def test_suspended_gateways(live_model: LiveOpenAi, line: Pipeline) -> None:
    """What they asked for stops where the pause is their death; each hears of it, and answers new requests at once.

    The longest pause is first; each other begins when nothing runs any more for the one before.
    """
    await line.start("text-completion")
    gateways = await asyncio.gather(*(line.start("gateway") for _ in PAUSES_SECONDS))
    live_model.pace = QUICK_SECONDS
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as pauses:
        lives: list[LiveStreams] = []
        for seconds, gateway in zip(reversed(PAUSES_SECONDS), gateways, strict=True):
            streams = live_streams(gateway.url, line.flow, count=MANY, prefix=f"{seconds} s, ")
            lives.append(await stack.enter_async_context(streams))
            await lives[-1].begun(BEGIN_SECONDS)
            pauses.create_task(gateway_suspended(live_model, line, gateway, lives[-1], seconds))
            if seconds > SHORT_SECONDS:
                await nothing_runs_for(live_model, lives[-1])
    for live in lives:
        assert sum(live.failed.values()) + len(live.whole) == MANY
        for stream in live.streams:
            told(stream.text, whole=stream.whole)
            assert len(live_model.of(stream.prompt)) == 1


async def nothing_runs_for(live_model: LiveOpenAi, live: LiveStreams) -> None:
    prompts = {stream.prompt for stream in live.streams}
    await live_model.until(lambda: prompts.isdisjoint(each.prompt for each in live_model.running), BOUND)


async def gateway_suspended(
    live_model: LiveOpenAi, line: Pipeline, gateway: Part, live: LiveStreams, seconds: float
) -> None:
    time = asyncio.get_running_loop().time
    began = time()
    with gateway.suspended():
        await asyncio.sleep(seconds)
    resumed = time()
    async with live_streams(gateway.url, line.flow, count=FEW, prefix=f"after {seconds} s, ") as fresh:
        await fresh.begun(BOUND)
    if seconds > SHORT_SECONDS:
        await live.over(max(resumed + BOUND - time(), 0))
        assert live.failed == {"unavailable": MANY}
    else:
        live_model.finish.set()
        await live.over(BEGIN_SECONDS)
        assert resumed - began > SHORT_SECONDS or len(live.whole) == MANY


async def test_suspended_processors(live_model: LiveOpenAi, line: Pipeline) -> None:
    """What nobody has seen goes to another one; what comes late of it disturbs nobody; all take requests again."""
    flows = {seconds: f"{line.flow}-{seconds}" for seconds in PAUSES_SECONDS}
    everything = line.configuration(*flows.values())
    gateway, *processors = await asyncio.gather(
        line.start("gateway", "--config", everything),
        *(line.start("text-completion", "--config", line.configuration(flow)) for flow in flows.values()),
    )

    live_model.finish.set()
    await asyncio.gather(*(asked(gateway.url, flow, "who is new has been heard of", 60) for flow in flows.values()))
    live_model.finish.clear()
    async with AsyncExitStack() as stack:

        async def opened(prefix: str) -> dict[int, LiveStreams]:
            return {
                seconds: await stack.enter_async_context(
                    live_streams(gateway.url, flow, count=COUNT, prefix=f"{prefix}, {seconds} s, ")
                )
                for seconds, flow in flows.items()
            }

        spoken = await opened("spoken")
        for live in spoken.values():
            await live.begun(BEGIN_SECONDS)
        live_model.speak.clear()
        silent = await opened("silent")
        streams = [stream for live in silent.values() for stream in live.streams]
        await live_model.until(lambda: all(live_model.of(stream.prompt) for stream in streams), BEGIN_SECONDS)
        await line.start("text-completion", "--config", everything)
        await asyncio.gather(
            *(
                processor_suspended(live_model, processor, spoken[seconds], silent[seconds], seconds)
                for processor, seconds in zip(processors, PAUSES_SECONDS, strict=True)
            )
        )
        fresh = await opened("fresh")
        for live in fresh.values():
            await live.begun(BOUND)
        live_model.finish.set()
        for live in (*spoken.values(), *silent.values(), *fresh.values()):
            await live.over(BEGIN_SECONDS)
    for seconds in PAUSES_SECONDS:
        assert silent[seconds].failed == fresh[seconds].failed == {}, seconds
        for stream in (*spoken[seconds].streams, *silent[seconds].streams, *fresh[seconds].streams):
            calls = live_model.of(stream.prompt)
            assert told(stream.text, whole=stream.whole) == calls[-1].number
            assert len(calls) == (2 if stream in silent[seconds].streams and seconds > SHORT_SECONDS else 1)


async def processor_suspended(
    live_model: LiveOpenAi, processor: Part, spoken: LiveStreams, silent: LiveStreams, seconds: float
) -> None:
    began = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as checks:
        if seconds > SHORT_SECONDS:
            checks.create_task(given_up(live_model, spoken, silent))
        with processor.suspended():
            await asyncio.sleep(seconds)
        if asyncio.get_running_loop().time() - began < SHORT_SECONDS:
            await asyncio.sleep(BOUND)
            assert not spoken.failed


async def given_up(live_model: LiveOpenAi, spoken: LiveStreams, silent: LiveStreams) -> None:
    """Return when everything that was with a dead processor has its end, or another processor."""
    async with asyncio.timeout(FOUND_SECONDS):
        await spoken.over(BOUND)
        assert spoken.failed == {"unavailable": COUNT}
        await live_model.until(
            lambda: all(len(live_model.of(stream.prompt)) == 2 for stream in silent.streams), FOUND_SECONDS
        )
    live_model.speak.set()
