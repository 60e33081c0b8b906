"""Responses that wait, with `max_attempts`: a model is asked again for what a dead gateway or processor has begun."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from prometheus_client import REGISTRY
from typing_extensions import override

from tests.fakes.mortal_bus import MortalBus
from tests.fakes.passing_bus import RemoteBus
from tests.flow.background_asking import begin, gather, poll, until_told
from tests.flow.open_gateway import CONFIG, TEXTS
from tests.flow.open_responses import MODEL
from tests.flow.waiting_gateways import (
    DEADLINE,
    FLEX,
    BusyLlm,
    OneMessageBus,
    WaitingGateways,
    ask,
    count_waited,
    open_gateways,
    serve,
)
from tests.until import until
from tg_base.bus import Bus, Entry, LogWriter
from tg_base.bus.memory import MemoryBus
from tg_base.client import StreamOrigin
from tg_base.config import GatewayConfig
from tg_base.llm import LlmChunk
from tg_gateway.access import Limits
from tg_gateway.jobs.log import END, MAKER, JobLog, kind_of, label_asked, label_part, label_returned
from tg_schema import TextCompletionRequest

SOON = Limits(silence=0.2, attempt_pause=0.0)
"""A gateway is taken for dead within the test."""
Note = tuple[Mapping[str, str], bytes]


def taken(by: str) -> list[Note]:
    """The notes of a gateway that has taken a response, and has asked a model."""
    return [(label_asked(by, origin=StreamOrigin("gone", 1, "gone")), b"")]


async def ask_twice(client: AsyncOpenAI, name: str, attempts: int = 2, **fields: Any) -> Any:
    """A response for which a model may be asked so often."""
    return await ask(client, name, extra_body={"max_attempts": attempts}, **fields)


@pytest.mark.parametrize(
    ("notes", "attempts", "status"),
    [
        (taken("dead"), 2, "completed"),
        (taken("dead"), 1, "failed"),
        # Each attempt counts, whoever made it; one that found no room does not.
        ([*taken("dead"), (label_returned("dead"), b""), *taken("other")], 2, "completed"),
        ([*taken("dead"), (label_returned("dead", 0.0), b""), *taken("other")], 2, "failed"),
        ([*taken("dead"), (label_returned("dead", 0.0), b""), *taken("other")], 3, "completed"),
        # A reader may have seen that part. Another gateway's would not go on where it ends.
        ([*taken("dead"), (label_part(1, "dead"), b"x")], 2, "failed"),
    ],
)
async def test_what_a_dead_gateway_has_asked_for_is_asked_again_while_attempts_are_left(
    notes: list[Note], attempts: int, status: str
) -> None:
    async with open_gateways() as it:
        client, before = await it.open_gateway(limits=SOON), count_waited("again")
        work = await it.occupy(client)
        made = await ask_twice(client, "made", attempts)
        for properties, body in notes:
            await it.bus.append(CONFIG.topics.kept(made.id), body, properties)
        for _ in range(2):
            it.llm.steps.release()
        await work
        ended = await poll(client, made.id)
        assert (ended.status, "processor" in str(ended.error)) == (status, status == "failed")
        assert it.llm.order == ["work"] + ["made"] * (status == "completed")
        # A reader may be the first to say that it is lost; then it is as if it were new to the gateway.
        assert count_waited("again") - before == (status == "completed")


async def test_a_second_attempt_does_not_begin_after_its_time() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(limits=SOON)
        work = await it.occupy(client)
        made = await ask(client, "made", stream=True, extra_body={"max_attempts": 2, "max_wait": 0.5})
        name = await begin(made)
        for properties, body in taken("dead"):
            await it.bus.append(CONFIG.topics.kept(name), body, properties)
        # The model has no room until then.
        events = await gather(made)
        final = events[-1]["response"]
        # Not "expired": a model may have been asked.
        assert (final["status"], "its gateway" in final["error"]["message"]) == ("failed", True)
        it.llm.steps.release()
        await work
        assert (await poll(client, name)).to_dict() == final
        assert it.llm.order == ["work"]


async def test_what_is_cancelled_after_its_gateway_has_died_is_not_asked_again() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(limits=SOON)
        work = await it.occupy(client)
        made, last = await ask_twice(client, "made"), await ask(client, "last")
        for properties, body in taken("dead"):
            await it.bus.append(CONFIG.topics.kept(made.id), body, properties)
        cancelling = asyncio.create_task(client.responses.cancel(made.id))
        for _ in range(2):
            it.llm.steps.release()
        await work
        assert (await cancelling).status in {"cancelled", "failed"}
        assert (await poll(client, last.id)).status == "completed"
        assert it.llm.order == ["work", "last"]


@pytest.mark.parametrize(("attempts", "deaths"), [(1, 1), (2, 1), (2, 2), (3, 2)])
async def test_what_its_processor_has_begun_when_it_dies_is_asked_again(attempts: int, deaths: int) -> None:
    bus, models = MemoryBus(), [BusyLlm() for _ in range(deaths + 1)]
    mortals = [MortalBus(bus) for _ in models]
    async with AsyncExitStack() as stack:
        it = WaitingGateways(models[0], RemoteBus(bus), stack)
        await stack.enter_async_context(serve(mortals[0], models[0]))
        client, before = await it.open_gateway(), count_waited("again")
        made = await ask_twice(client, "made", attempts)
        for number in range(deaths):
            await asyncio.wait_for(models[number].started.wait(), DEADLINE)
            mortals[number].kill()
            await stack.enter_async_context(serve(mortals[number + 1], models[number + 1]))
        models[-1].steps.release()
        ended = await poll(client, made.id)
        assert (ended.status, ended.output_text) == (("completed", "0 ") if attempts > deaths else ("failed", ""))
        assert sum(len(model.order) for model in models) == min(attempts, deaths + 1)
        assert count_waited("again") - before == min(attempts, deaths + 1) - 1


class CutLlm(BusyLlm):
    """Its first answer has no end, as that of a server that is killed."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        async for chunk in super().generate_content_stream(request):
            if chunk.finish_reason and len(self.order) == 1:
                return
            yield chunk


def count_broken() -> float:
    """How many attempts have ended so, as the access log has it."""
    labels = {"door": "background", "service": "text-completion", "outcome": "incomplete-stream"}
    return REGISTRY.get_sample_value("tg_gateway_requests_total", labels) or 0


@pytest.mark.parametrize("attempts", [1, 2])
async def test_what_its_server_has_broken_off_is_asked_again(attempts: int) -> None:
    bus, llm = MemoryBus(), CutLlm()
    for _ in range(attempts):
        llm.steps.release()
    async with serve(bus, llm), AsyncExitStack() as stack:
        client, before = await WaitingGateways(llm, bus, stack).open_gateway(), count_broken()
        ended = await poll(client, (await ask_twice(client, "made", attempts)).id)
        assert (ended.status, llm.order) == (("completed", "failed")[attempts == 1], ["made"] * attempts)
        # Not as of a client that has left.
        await until(lambda: count_broken() - before == 1)


async def test_what_somebody_may_have_read_is_not_asked_again() -> None:
    bus, llm, other = MemoryBus(), BusyLlm(), BusyLlm()
    mortal = MortalBus(bus)
    async with AsyncExitStack() as stack:
        it = WaitingGateways(llm, RemoteBus(bus), stack)
        await stack.enter_async_context(serve(mortal, llm))
        client = await it.open_gateway()
        stream = await client.responses.create(
            model=MODEL, input="2", background=True, service_tier="flex", stream=True, extra_body={"max_attempts": 9}
        )
        llm.steps.release()
        await until_told(stream)
        mortal.kill()
        await stack.enter_async_context(serve(bus, other))
        final = (await gather(stream))[-1]["response"]
        assert (final["status"], "processor" in final["error"]["message"], other.order) == ("failed", True, [])


@pytest.mark.parametrize("attempts", [1, 2])
async def test_what_runs_when_its_gateway_shuts_down_goes_to_another_one(attempts: int) -> None:
    async with open_gateways() as it:
        first, second = await it.open_gateway(limits=SOON), await it.open_gateway(limits=SOON)
        made = await ask_twice(first, "made", attempts)
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        maker = 0 if it.requestors[0]._streams else 1
        await it.gateways[maker].aclose()
        it.llm.steps.release()
        ended = await poll((second, first)[maker], made.id)
        assert (ended.status, it.llm.order) == (("completed", "failed")[attempts == 1], ["made"] * attempts)


class SuspendedBus(OneMessageBus):
    """Of one gateway. While it is suspended it neither writes nor reads logs.

    Attributes:
        awake: clear it to suspend the gateway.
        held: kinds of entries that it has, or would have, appended.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.awake = asyncio.Event()
        self.awake.set()
        self.held = set[str]()

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        self.held.add(properties.get("kind", ""))
        await self.awake.wait()
        return await super().append(topic, body, properties)

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        yield LogWriter(topic, self.append)

    @override
    @asynccontextmanager
    async def follow(self, topic: str, after: str) -> AsyncIterator[AsyncIterator[Entry]]:
        async with super().follow(topic, after) as entries:
            yield self._read_on(entries)

    async def _read_on(self, entries: AsyncIterator[Entry]) -> AsyncIterator[Entry]:
        async for entry in entries:
            await self.awake.wait()
            yield entry


@pytest.mark.parametrize("ends", [True, False], ids=["its model has ended", "its model works"])
async def test_a_gateway_that_was_suspended_finds_that_another_one_has_its_place(ends: bool) -> None:
    async with open_gateways(capacity=2, room=2) as it:
        bus, suspended = it.bus, SuspendedBus(it.bus)
        it.bus = suspended
        one = await it.open_gateway(limits=SOON)
        made = await ask_twice(one, "made")
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        suspended.awake.clear()
        if ends:
            it.llm.steps.release()
            await until(lambda: END in suspended.held)
        # The broker gives its message to another one.
        it.bus = bus
        other, topic = await it.open_gateway(limits=SOON), CONFIG.topics.kept(made.id)
        async with asyncio.timeout(DEADLINE), bus.follow(topic, (await bus.read(topic))[-1].position) as entries:
            await bus.publish(CONFIG.topics.flex_queue(TEXTS[0].request), suspended.put[0], {})
            while kind_of(await anext(entries)) != MAKER:
                pass
        suspended.awake.set()
        if not ends:
            it.llm.steps.release()
        found = await poll(other, made.id)
        assert (await poll(one, made.id)).to_dict() == found.to_dict()
        # The other one has gone on with the same generation.
        assert (found.status, found.output_text, it.llm.order) == ("completed", "0 ", ["made"])
        entries_ = await bus.read(topic)
        makers = [each.properties["by"] for each in entries_ if kind_of(each) == END]
        assert JobLog(entries_).maker in makers
        assert len(makers) == len(set(makers))


@pytest.mark.parametrize("fields", [{}, {"background": True}, {"service_tier": "flex"}])
async def test_what_does_not_wait_has_one_attempt(fields: dict[str, Any]) -> None:
    async with open_gateways() as it:
        client = await it.open_gateway()
        with pytest.raises(openai.BadRequestError, match='background: true and service_tier: "flex"') as caught:
            await client.responses.create(model=MODEL, input="1", extra_body={"max_attempts": 2}, **fields)
        assert (caught.value.param, it.llm.order) == ("max_attempts", [])


@pytest.mark.parametrize("attempts", [0, 11, 1.5, "2"])
async def test_attempts_are_a_small_number(attempts: Any) -> None:
    async with open_gateways() as it:
        client = await it.open_gateway()
        with pytest.raises(openai.BadRequestError, match="max_attempts") as caught:
            await ask_twice(client, "made", attempts)
        assert caught.value.param == "max_attempts"


async def test_where_nothing_waits_nothing_is_asked_again() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(GatewayConfig(port=0, drain=FLEX.drain))
        with pytest.raises(openai.BadRequestError, match="no response waits") as caught:
            await ask_twice(client, "made")
        assert caught.value.param == "max_attempts"
