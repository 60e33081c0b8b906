"""Responses that wait, after a lost attempt: a growing pause, which nobody else waits for; and what counts as lost."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace
from typing_extensions import override

from tests.flow.background_asking import poll
from tests.flow.open_gateway import CONFIG
from tests.flow.waiting_gateways import (
    ASKED_BEFORE,
    FLEX,
    ONCE,
    BusyLlm,
    WaitingGateways,
    ask,
    count_waited,
    open_gateways,
    serve,
)
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.config import GatewayConfig
from tg_base.llm import LlmChunk
from tg_gateway.access import Limits
from tg_gateway.jobs.log import CANCEL, label, label_returned
from tg_schema import TextCompletionRequest

LOST = [ASKED_BEFORE]


class CutLlm(BusyLlm):
    """Its answers break off, but for those to others than "made".

    Attributes:
        asked_at: when it was asked for "made", by the wall clock.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked_at: list[float] = []

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        if request.user == "made":
            self.asked_at.append(time.time())
            self.order.append("made")
            # Before its first word the processor would ask the server again by itself, as for any request.
            yield LlmChunk(text="lost")
            return
        async for chunk in super().generate_content_stream(request):
            yield chunk


async def test_the_next_attempt_begins_when_the_log_says_it() -> None:
    bus, llm = MemoryBus(), CutLlm()
    async with serve(bus, llm), AsyncExitStack() as stack:
        client = await WaitingGateways(llm, bus, stack).open_gateway(limits=Limits(attempt_pause=2.0))
        made = await ask(client, "made", extra_body={"max_attempts": 2})
        assert (await poll(client, made.id)).status == "failed"
        log = await bus.read(CONFIG.topics.kept(made.id))
        (resumes,) = [float(each.properties["resumes"]) for each in log if "resumes" in each.properties]
        first, second = llm.asked_at
        assert first + 1 <= resumes <= second


async def test_nobody_waits_for_the_pause_of_another_one() -> None:
    bus, llm = MemoryBus(), CutLlm()
    async with serve(bus, llm), AsyncExitStack() as stack:
        client = await WaitingGateways(llm, bus, stack).open_gateway(limits=Limits(attempt_pause=1000.0))
        made = await ask(client, "made")
        await until(lambda: len(llm.asked_at) == 1)
        for name in "ab":
            llm.steps.release()
            assert (await poll(client, (await ask(client, name)).id)).status == "completed"
        assert ((await client.responses.retrieve(made.id)).status, len(llm.asked_at)) == ("queued", 1)
        assert (await client.responses.cancel(made.id)).status == "cancelled"


async def test_a_pause_outlives_its_gateway_and_ends_with_the_time_to_begin() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(limits=Limits(silence=0.1))
        work = await it.occupy(client)
        made = await ask(client, "made")
        late = await ask(client, "late", extra_body={"max_wait": 1.5})
        for each in (made, late):
            for note in [*LOST, label_returned("dead", time.time() + 1000)]:
                await it.bus.append(CONFIG.topics.kept(each.id), b"", note)
        other = await ask(client, "other")
        for _ in range(2):
            it.llm.steps.release()
        await work
        # It comes last, and is asked first.
        assert (await poll(client, other.id)).status == "completed"
        ended = await poll(client, late.id)
        assert (ended.status, "its gateway" in ended.error.message) == ("failed", True)
        assert ((await client.responses.retrieve(made.id)).status, it.llm.order) == ("queued", ["work", "other"])


async def test_what_pauses_comes_again_when_its_pause_is_over() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway()
        work, resumes = await it.occupy(client), time.time() + 1.5
        made = [await ask(client, name) for name in "abc"]
        for each in made:
            for note in [*LOST, label_returned("dead", resumes)]:
                await it.bus.append(CONFIG.topics.kept(each.id), b"", note)
        for _ in range(4):
            it.llm.steps.release()
        await work
        taken = count_waited("taken")
        assert {(await poll(client, each.id)).status for each in made} == {"completed"}
        assert time.time() >= resumes
        assert (sorted(it.llm.order[1:]), count_waited("taken") - taken) == (["a", "b", "c"], 3)


def count_waiting() -> float:
    """What waits, as docs/gateway.md has it."""
    more, less = ("put", "returned", "again"), ("taken", "expired", "dropped")
    return sum(map(count_waited, more)) - sum(map(count_waited, less))


@pytest.mark.parametrize("cancelled", ["before", "behind"])
async def test_what_is_cancelled_after_a_lost_attempt_does_not_count_as_waiting(cancelled: str) -> None:
    async with open_gateways() as it:
        client = await it.open_gateway()
        work, before = await it.occupy(client), count_waiting()
        made = await ask(client, "made")
        stop: list[Mapping[str, str]] = [label(CANCEL)] if cancelled == "before" else []
        for note in [*LOST, *stop, label_returned("dead", 0.0)]:
            await it.bus.append(CONFIG.topics.kept(made.id), b"", note)
        if cancelled == "behind":
            await client.responses.cancel(made.id)
        last = await ask(client, "last")
        for _ in range(2):
            it.llm.steps.release()
        await work
        assert (await poll(client, last.id)).status == "completed"
        assert (await poll(client, made.id)).status == "cancelled"
        # The dead one had counted what it has taken and given back.
        assert (count_waiting() - before, it.llm.order) == (0, ["work", "last"])


@pytest.mark.parametrize(("notes", "waits"), [(LOST, 0), ([*LOST, label_returned("dead", 0.0)], 1)])
async def test_what_a_dead_gateway_has_taken_counts_as_taken_once(notes: list[Mapping[str, str]], waits: int) -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(limits=Limits(silence=0.1, attempt_pause=0.0))
        work, before = await it.occupy(client), count_waiting()
        made = await ask(client, "made")
        for note in notes:
            await it.bus.append(CONFIG.topics.kept(made.id), b"", note)
        for _ in range(2):
            it.llm.steps.release()
        await work
        assert (await poll(client, made.id)).status == "completed"
        # The dead one has counted it, and that it has given it back.
        assert count_waiting() - 1 - before == -waits


class SilentLlm(BusyLlm):
    """Its first answer stalls, as that of a server whose machine has vanished, behind some words or none."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.clocks = replace(self.clocks, first_token=0.2, idle=0.2)
        self.words = words

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        async for chunk in super().generate_content_stream(request):
            if len(self.order) == 1:
                for _ in range(self.words):
                    yield LlmChunk(text="lost ")
                await asyncio.Event().wait()
            yield chunk


@pytest.mark.parametrize("words", [0, 1])
async def test_what_its_server_has_fallen_silent_over_is_asked_again(words: int) -> None:
    bus, llm = MemoryBus(), SilentLlm(words)
    for _ in range(2):
        llm.steps.release()
    async with serve(bus, llm), AsyncExitStack() as stack:
        client = await WaitingGateways(llm, bus, stack).open_gateway()
        ended = await poll(client, (await ask(client, "made")).id)
        assert (ended.status, ended.output_text, llm.order) == ("completed", "0 ", ["made"] * 2)


async def test_what_takes_longer_than_any_answer_may_is_not_asked_again() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(limits=Limits(attempt_pause=0.0, run=0.2))
        ended = await poll(client, (await ask(client, "made")).id)
        assert (ended.status, "took longer" in ended.error.message, it.llm.order) == ("failed", True, ["made"])


async def test_what_takes_longer_than_its_model_may_is_not_asked_again() -> None:
    bus, llm = MemoryBus(), BusyLlm()
    llm.clocks = replace(llm.clocks, total=0.2)
    async with serve(bus, llm), AsyncExitStack() as stack:
        client = await WaitingGateways(llm, bus, stack).open_gateway()
        ended = await poll(client, (await ask(client, "made")).id)
        assert (ended.status, "not finished within 0.2 s" in ended.error.message) == ("failed", True)
        assert llm.order == ["made"]


@pytest.mark.parametrize(("config", "asked"), [(FLEX, 3), (replace(FLEX, default_max_attempts=1), 1)])
async def test_how_often_a_model_is_asked_by_default_says_the_operator(config: GatewayConfig, asked: int) -> None:
    bus, llm = MemoryBus(), CutLlm()
    async with serve(bus, llm), AsyncExitStack() as stack:
        client = await WaitingGateways(llm, bus, stack).open_gateway(config)
        assert (await poll(client, (await ask(client, "made")).id)).status == "failed"
        assert len(llm.asked_at) == asked
        # The client has the last word.
        assert (await poll(client, (await ask(client, "made", extra_body=ONCE)).id)).status == "failed"
        assert len(llm.asked_at) == asked + 1
