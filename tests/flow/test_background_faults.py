"""Responses in the background where something fails: gateways that leave or die, limits, a bus that refuses or lags."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import openai
import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm, SteppedLlm, release
from tests.fakes.erased_logs import ErasedLogs
from tests.fakes.held_notes import HeldNotes
from tests.fakes.passing_bus import PassingBus
from tests.fakes.unwritable_bus import FULL, UnwritableBus
from tests.flow.background_asking import (
    DEADLINE,
    MANY,
    RUNNING,
    begin,
    client_of,
    gather,
    gather_until_cut,
    open_pair,
    poll,
    until_told,
)
from tests.flow.open_gateway import another_gateway, open_gateway
from tests.flow.open_responses import MODEL
from tests.until import until
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.config import GatewayConfig
from tg_base.llm import LlmChunk
from tg_gateway.access import Limits
from tg_gateway.jobs.log import CANCEL, END, PART, QUEUED
from tg_schema import TextCompletionRequest
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.topics import Topics

READS = Limits(all_background=0)
"""Those of a gateway that makes no response."""


async def test_a_gateway_that_drains_waits_and_ends_what_does_not_end() -> None:
    llm = SteppedLlm()
    async with (
        open_gateway(llm=llm, limits=READS) as opened,
        client_of(opened.gateway) as client,
    ):
        for drain, words, status in ((DEADLINE, 1, "completed"), (0.05, 0, "failed")):
            config = GatewayConfig(port=0, drain=drain)
            async with another_gateway(opened.bus, config) as leaving, client_of(leaving) as asking:
                made = await asking.responses.create(model=MODEL, input="1", background=True)
                if words:
                    asyncio.get_running_loop().call_later(0.05, llm.step.release)
            final = await client.responses.retrieve(made.id)
            assert final.status == status
            assert (final.error is None) == (status == "completed")


async def test_a_gateway_does_not_leave_before_its_ends_are_kept() -> None:
    llm, bus = SteppedLlm(), UnwritableBus(MemoryBus())
    async with (
        open_gateway(llm=llm, bus=bus, limits=READS) as opened,
        client_of(opened.gateway) as client,
    ):
        bus.refused = {"end"}
        async with another_gateway(bus) as leaving, client_of(leaving) as asking:
            made = await asking.responses.create(model=MODEL, input="1", background=True)
            freeing = asyncio.create_task(bus.take_again())
        await freeing
        final: Any = await client.responses.retrieve(made.id)
        assert (final.status, final.error.message) == ("failed", "the gateway is shutting down; ask again")


async def test_whoever_reads_what_a_dead_gateway_left_says_that_it_failed() -> None:
    llm, bus = SteppedLlm(), MemoryBus()
    mute = UnwritableBus(bus)
    async with (
        open_gateway(llm=llm, bus=bus, limits=replace(READS, silence=0.2)) as opened,
        another_gateway(mute) as dying,
        client_of(dying) as one,
        client_of(opened.gateway) as other,
    ):
        made = [await one.responses.create(model=MODEL, input=MANY, background=True) for _ in range(2)]
        stream = await one.responses.create(model=MODEL, input=MANY, background=True, stream=True)
        name = await begin(stream)
        await until(lambda: len(llm.requests) == 3)
        release(llm.step, 30)
        await until_told(stream)
        mute.dropped = {"records", "alive", "end"}
        told = await gather(await other.responses.retrieve(name, stream=True))
        assert (told[-1]["type"], told[-1]["response"]["status"]) == ("response.failed", "failed")
        assert [event["sequence_number"] for event in told] == list(range(len(told)))
        assert "create it again" in told[-1]["response"]["error"]["message"]
        assert (await other.responses.retrieve(name)).to_dict() == told[-1]["response"]
        assert (await poll(other, made[0].id)).status == "failed"
        assert (await other.responses.cancel(made[1].id)).status == "cancelled"
        # It was only suspended: it learns what was said of its responses, and stops.
        await asyncio.wait_for(llm.stopped.wait(), DEADLINE)
        assert (await one.responses.retrieve(name)).to_dict() == told[-1]["response"]


async def test_whoever_follows_is_told_why_no_end_can_be_written() -> None:
    """As over a full backlog: the gateway that makes it can write nothing, and the one that reads it no end."""
    llm, bus = SteppedLlm(), MemoryBus()
    mute, full = UnwritableBus(bus), UnwritableBus(bus)
    async with (
        open_gateway(llm=llm, bus=full, limits=replace(READS, silence=0.2)) as opened,
        another_gateway(mute) as writing,
        client_of(writing) as one,
        client_of(opened.gateway) as other,
    ):
        stream = await one.responses.create(model=MODEL, input=MANY, background=True, stream=True)
        name = await begin(stream)
        following = await other.responses.retrieve(name, stream=True)
        llm.step.release()
        await until_told(following)
        mute.dropped, full.refused = {"records", "alive", "end"}, {"end"}
        told = await gather_until_cut(following)
        # Its number is that of the event before it, the first piece of the text: nothing is missed behind it.
        assert told == [{"type": "error", "code": "bus", "message": FULL, "param": None, "sequence_number": 5}]
        # It has not been asked for since its last entry, but it was watched.
        with pytest.raises(openai.InternalServerError, match=FULL):
            await other.responses.retrieve(name)
        # The model is not stopped by that, and there is an end as soon as the broker takes one.
        full.refused = set()
        assert (await poll(other, name)).status == "failed"


async def test_whoever_follows_is_told_that_the_response_was_deleted() -> None:
    async with open_pair() as it:
        name = await begin(await it.one.responses.create(model=MODEL, input=MANY, background=True, stream=True))
        stream = await it.other.responses.retrieve(name, stream=True)
        assert await begin(stream) == name
        await it.one.responses.delete(name)
        told = await gather_until_cut(stream)
        assert (told[-1]["type"], told[-1]["code"]) == ("error", "response_not_found")


async def test_too_many_events_are_not_kept_but_the_response_is() -> None:
    async with open_pair(Limits(part_bytes=10)) as it:
        stream = await it.one.responses.create(model=MODEL, input="20", background=True, stream=True)
        name = await begin(stream)
        it.step(20)
        with pytest.raises(openai.APIConnectionError):
            await gather(stream)
        assert len((await poll(it.other, name)).output_text.split()) == 20
        with pytest.raises(openai.BadRequestError, match="too long") as raised:
            await it.other.responses.retrieve(name, stream=True)
        assert raised.value.param == "stream"


async def test_one_that_takes_too_long_fails() -> None:
    # On a slow machine it takes a while until the model is asked.
    async with open_pair(Limits(run=3.0)) as it:
        made = await it.one.responses.create(model=MODEL, input=MANY, background=True)
        final = await poll(it.other, made.id)
        assert (final.status, final.error.message[:24]) == ("failed", "the response took longer")
        await asyncio.wait_for(it.llm.stopped.wait(), DEADLINE)


PIECE = 15_000


def outcomes(logs: Sequence[Mapping[str, Any]]) -> list[str]:
    """How requests ended, as the log has it: the one that begins a response, and the response itself."""
    lines = [line for line in logs if line["event"] == "gateway.request" and line["service"] == "text-completion"]
    return [line["outcome"] for line in lines]


class _Narrow(PassingBus):
    """Takes messages of 2,000 bytes."""

    max_message = 2000


async def test_a_response_too_large_to_be_kept_says_so() -> None:
    bus = MemoryBus()
    async with (
        open_gateway(bus=bus, limits=READS),
        another_gateway(_Narrow(bus)) as gateway,
        client_of(gateway) as client,
    ):
        with capture_logs() as logs:
            made = await client.responses.create(model=MODEL, input="500", background=True)
            final = await poll(client, made.id)
            await until(lambda: len(outcomes(logs)) == 2)
        said = final.error.message.split(":")[0]
        assert (final.status, said) == ("failed", "the response is larger than what is kept")
        assert outcomes(logs) == ["ok", "too-large"]


class LongLlm(CountingLlm):
    """Its answer is larger than any may be, by its last piece alone."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        for _ in range(MAX_ANSWER_BYTES // PIECE + 1):
            yield LlmChunk("x" * PIECE)
        yield LlmChunk(finish_reason="stop")


async def test_a_response_that_is_too_large_only_at_its_end_is_no_success() -> None:
    with capture_logs() as logs:
        async with open_gateway(llm=LongLlm()) as opened, client_of(opened.gateway) as client:
            made = await client.responses.create(model=MODEL, input="1", background=True)
            final = await poll(client, made.id)
            await until(lambda: len(outcomes(logs)) == 2)
    assert final.status == "failed"
    assert outcomes(logs) == ["ok", "too-large"]


async def test_a_bus_that_takes_no_events_does_not_stop_the_model() -> None:
    llm, bus = SteppedLlm(), UnwritableBus(MemoryBus())
    bus.refused = {"records"}
    async with open_gateway(llm=llm, bus=bus) as opened, client_of(opened.gateway) as client:
        stream = await client.responses.create(model=MODEL, input="3", background=True, stream=True)
        release(llm.step, 3)
        with pytest.raises(openai.APIConnectionError):
            await gather(stream)
        [name] = bus.names
        final = await poll(client, name)
        assert (final.status, final.output_text) == ("completed", "0 1 2 ")


async def test_an_end_that_the_bus_refuses_is_appended_again() -> None:
    bus = UnwritableBus(MemoryBus())
    bus.refused = {"end"}
    async with open_gateway(bus=bus) as opened, client_of(opened.gateway) as client:
        made = await client.responses.create(model=MODEL, input="3", background=True)
        await asyncio.wait_for(bus.asked.wait(), DEADLINE)
        assert (await client.responses.retrieve(made.id)).status in RUNNING
        bus.refused = set()
        assert (await poll(client, made.id)).status == "completed"


class _Slow(HeldNotes):
    """Never takes the note that a service is asked."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, QUEUED)
        self.erased = asyncio.Event()

    @override
    async def erase(self, topic: str) -> None:
        await super().erase(topic)
        self.erased.set()


@pytest.mark.parametrize("kind", [PART, CANCEL])
async def test_what_arrives_after_an_erasure_does_not_stay(kind: str) -> None:
    llm, bus = SteppedLlm(), ErasedLogs(MemoryBus(), kind)
    async with open_gateway(llm=llm, bus=bus) as opened, client_of(opened.gateway) as client:
        made = await client.responses.create(model=MODEL, input=MANY, background=True)
        await asyncio.wait_for(llm.started.wait(), DEADLINE)
        if kind == PART:
            await client.responses.delete(made.id)
        else:
            with pytest.raises(openai.NotFoundError):
                await client.responses.cancel(made.id)
        await asyncio.wait_for(llm.stopped.wait(), DEADLINE)
        await asyncio.wait_for(bus.swept.wait(), DEADLINE)
        assert await bus.read(Topics().kept(made.id)) == ()


async def test_an_end_that_arrives_after_an_erasure_does_not_stay() -> None:
    bus = ErasedLogs(MemoryBus(), END)
    async with open_gateway(bus=bus) as opened, client_of(opened.gateway) as client:
        made = await client.responses.create(model=MODEL, input="1", background=True)
        await asyncio.wait_for(bus.swept.wait(), DEADLINE)
        assert await bus.read(Topics().kept(made.id)) == ()


async def test_who_leaves_before_the_id_is_known_stops_it() -> None:
    llm, bus = SteppedLlm(), _Slow(MemoryBus())
    async with open_gateway(llm=llm, bus=bus) as opened, client_of(opened.gateway) as client:
        asking = asyncio.create_task(client.responses.create(model=MODEL, input=MANY, background=True))
        await asyncio.wait_for(bus.held.wait(), DEADLINE)
        await asyncio.wait_for(llm.started.wait(), DEADLINE)
        asking.cancel()
        await asyncio.wait_for(llm.stopped.wait(), DEADLINE)
        assert llm.generated == 0
        # Its head may have arrived.
        await asyncio.wait_for(bus.erased.wait(), DEADLINE)
