"""Streams over a bus that loses, repeats and reorders: the text is whole, or the stream ends in one error; no hole.

TOKENGRID_LOSSLESS=1000 runs so many seeds of each kind.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from uuid import uuid4

import pytest

from tests.fakes.counting_llm import CountingLlm, release
from tests.fakes.faulty_bus import FaultyBus
from tests.fakes.typed_clients import LlmClient
from tests.pulsar_server import PulsarServer
from tests.virtual_time import in_virtual_time
from tg_base.bus import Bus, open_bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.protocol import HeartbeatTiming, Route
from tg_base.runtime import running
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION, TgError
from tg_schema.topics import Topics

TOPICS = Topics()
WORDS = 40
WHOLE = "".join(f"{number} " for number in range(WORDS))
STREAMS = 20
SEEDS = int(os.environ.get("TOKENGRID_LOSSLESS", "25"))
SEEDS_AT_ONCE = 5
SEEDS_OF_A_BROKER = max(SEEDS // 25, 3)


async def paced(llm: CountingLlm, pace: float) -> None:
    """Lets the model go on a little at a time, so that its words travel in many messages."""
    llm.step = asyncio.Semaphore(0)
    while True:
        release(llm.step, 10)
        await asyncio.sleep(pace)
        await asyncio.sleep(0)


async def answer(client: LlmClient) -> str:
    """What became of one stream: "whole", or the kind of its error."""
    text = ""
    try:
        async with aclosing(client.request_stream("", str(WORDS), timeout=20)) as pieces:
            async for piece in pieces:
                text += piece
    except TgError as error:
        assert WHOLE.startswith(text), text
        return error.type
    assert text == WHOLE, f"not whole: {text}"
    return "whole"


async def answers(bus: FaultyBus, beat: float, pace: float) -> Counter[str]:
    """What became of many."""
    flow, timing = uuid4().hex, HeartbeatTiming(interval=beat)
    route = Route(flow, TEXT_COMPLETION, TOPICS.request(flow, "t"), TOPICS.response(flow, "t"))
    llm = CountingLlm()
    async with (
        running(paced(llm, pace)),
        Processor(bus, TOPICS, llm, (route,), timing=timing),
        Requestor(bus, TOPICS, timing=timing) as requestor,
    ):
        client = LlmClient(requestor, route)
        return Counter(await asyncio.gather(*(answer(client) for _ in range(STREAMS))))


def answered(topic: str) -> bool:
    """Inboxes only."""
    return "tg-inbox" in topic


def passing(topic: str) -> bool:
    """Whatever the broker does not keep: responses, cancels, beats, requests to resend, announcements."""
    return topic.startswith("non-persistent://")


async def survived(
    bus: Bus, victim: Callable[[str], bool], seed: int, *, beat: float, pace: float = 0.001
) -> tuple[Counter[str], int]:
    """The ends of one run, and how many faults there were in it."""
    faulty = FaultyBus(bus, victim, seed=seed, share=0.3)
    return await answers(faulty, beat, pace), faulty.faults


async def side_by_side(victim: Callable[[str], bool], first: int) -> dict[int, tuple[Counter[str], int]]:
    """What became of some seeds, each on a bus of its own; most of the time their streams wait."""

    async def one(seed: int) -> tuple[Counter[str], int]:
        async with aclosing(MemoryBus()) as bus:
            return await survived(bus, victim, seed, beat=0.2)

    seeds = range(first, min(first + SEEDS_AT_ONCE, SEEDS))
    return dict(zip(seeds, await asyncio.gather(*map(one, seeds)), strict=True))


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_AT_ONCE))
@in_virtual_time
async def test_lost_responses_are_sent_again(first: int) -> None:
    for seed, (ends, faults) in (await side_by_side(answered, first)).items():
        assert set(ends) <= {"whole", "bus"}, seed
        assert ends["whole"] > STREAMS / 2, seed
        assert faults > 0, seed


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_AT_ONCE))
@in_virtual_time
async def test_whatever_is_lost_the_text_has_no_hole(first: int) -> None:
    for seed, (ends, faults) in (await side_by_side(passing, first)).items():
        assert set(ends) <= {"whole", "unavailable", "bus"}, seed
        assert faults > 3, seed


@pytest.mark.connected
@pytest.mark.parametrize("victim", [answered, passing])
async def test_over_a_broker_too(pulsar: PulsarServer, victim: Callable[[str], bool]) -> None:
    """Fewer seeds, and as many messages as the broker's speed makes of the words."""
    total = 0
    async with open_bus(pulsar.service_url) as bus:
        for seed in range(SEEDS_OF_A_BROKER):
            ends, faults = await survived(bus, victim, seed, beat=0.5, pace=0.01)
            assert set(ends) <= {"whole", "unavailable", "bus"}
            assert ends["whole"] > (STREAMS / 2 if victim is answered else 0)
            total += faults
    assert total > SEEDS_OF_A_BROKER
