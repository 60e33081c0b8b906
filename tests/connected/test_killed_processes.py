"""A processor or a gateway is killed under fifty live streams: nothing stitched, nothing paid twice, no orphans."""

import asyncio

import pytest

from tests.connected.live_streams import STREAMS, LiveStreams, live_streams
from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import LiveOpenAi, told

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

BOUND = 5.0
"""Seconds after the death in which everything has ended that it ends."""


async def test_a_killed_processor(live_model: LiveOpenAi, line: Pipeline) -> None:
    """Streams with text end in one error; those without go to the other processor, and nobody sees it."""
    gateway, first = await asyncio.gather(line.start("gateway"), line.start("text-completion"))
    loop = asyncio.get_running_loop()
    async with live_streams(gateway.url, line.flow, prefix="spoken") as spoken:
        await spoken.begun(30)
        live_model.speak.clear()
        async with live_streams(gateway.url, line.flow, prefix="silent") as silent:
            await live_model.until(lambda: len(live_model.generations) == 2 * STREAMS, 20)
            second = await line.start("text-completion")
            first.process.kill()
            killed = loop.time()
            await spoken.over(BOUND)
            assert spoken.failed == {"unavailable": STREAMS}
            await live_model.until(lambda: len(live_model.generations) == 3 * STREAMS, BOUND)
            assert loop.time() - killed < BOUND
            live_model.speak.set()
            live_model.finish.set()
            await silent.over(20)
    assert len(silent.whole) == STREAMS
    assert all(told(stream.text, whole=True) >= 2 * STREAMS for stream in silent.streams)
    assert_paid_once(live_model, spoken)
    assert second.alive


async def test_a_processor_killed_right_after_its_first_chunks(live_model: LiveOpenAi, line: Pipeline) -> None:
    """Its acknowledgements may not have left yet, so that the broker gives the requests out again."""
    gateway, first, _ = await asyncio.gather(
        line.start("gateway"), line.start("text-completion"), line.start("text-completion")
    )
    live_model.speak.clear()
    async with live_streams(gateway.url, line.flow) as live:
        await live_model.until(lambda: len(live_model.generations) == STREAMS, 20)
        live_model.speak.set()
        await live.any_begun(10)
        first.process.kill()
        live_model.finish.set()
        await live.over(2 * BOUND)
    # Nobody fails where the first chunks are all of the other processor's.
    assert len(live.whole) + live.failed.get("unavailable", 0) == STREAMS
    for stream in live.streams:
        # What was shown is of the last call: an answer of which something was shown was not begun again.
        calls = live_model.of(stream.prompt)
        assert len(calls) <= 2
        assert told(stream.text, whole=stream.whole) == calls[-1].number


async def test_a_killed_gateway(live_model: LiveOpenAi, line: Pipeline) -> None:
    """What it asked for stops; another one that takes its place gets its own answers only."""
    gateway, _ = await asyncio.gather(line.start("gateway"), line.start("text-completion"))
    loop = asyncio.get_running_loop()
    async with live_streams(gateway.url, line.flow) as live:
        await live.begun(30)
        gateway.process.kill()
        killed = loop.time()
        await live.over(BOUND)
        assert not live.whole
        assert sum(live.failed.values()) == STREAMS
        fresh = await line.start("gateway")
        async with live_streams(fresh.url, line.flow, prefix="fresh") as others:
            await others.begun(30)
            await live_model.until(lambda: len(live_model.running) == STREAMS, BOUND)
            live_model.finish.set()
            await others.over(20)
    orphans = [live_model.of(stream.prompt)[0] for stream in live.streams]
    assert max(orphan.left_at for orphan in orphans) - killed < BOUND
    assert len(others.whole) == STREAMS
    for stream in others.streams:
        assert live_model.generations[told(stream.text, whole=True)].prompt == stream.prompt
    assert_paid_once(live_model, live)
    assert_paid_once(live_model, others)


def assert_paid_once(live_model: LiveOpenAi, live: LiveStreams) -> None:
    """One call for each stream."""
    assert [len(live_model.of(stream.prompt)) for stream in live.streams] == [1] * STREAMS
