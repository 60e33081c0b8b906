"""Responses of the tier "flex": they wait on the bus until their model has room, and outlive their gateway."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import openai
import pytest
from typing_extensions import override

from tests.fakes.mortal_bus import MortalBus
from tests.fakes.passing_bus import RemoteBus
from tests.flow.background_asking import begin, gather, poll
from tests.flow.open_gateway import CONFIG, TEXTS
from tests.flow.open_responses import MODEL
from tests.flow.responses_stream import check_stream
from tests.flow.waiting_gateways import (
    ASKED_BEFORE,
    DEADLINE,
    ONCE,
    SLOWER,
    BusyLlm,
    OneMessageBus,
    WaitingGateways,
    ask,
    count_returned,
    open_gateways,
    serve,
)
from tests.until import until
from tg_base.bus import Bus, LogWriter
from tg_base.bus.memory import MemoryBus
from tg_base.config import GatewayConfig
from tg_gateway.access import Limits
from tg_gateway.jobs.job import QueuedJob
from tg_gateway.jobs.log import MAKER, label_returned
from tg_gateway.jobs.queue_bounds import CHECKED_AT_ONCE
from tg_schema import encode


async def test_what_waits_is_made_below_all_other_work_and_in_its_order() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway()
        work = await it.occupy(client)
        stream = await ask(client, "first", stream=True)
        name = await begin(stream)
        second = await ask(client, "second", extra_body={"max_wait": 600})
        # It comes last, and is asked first.
        more = asyncio.create_task(client.responses.create(model=MODEL, input="1", user="more"))
        await until(lambda: len(it.requestors[0]._streams) == 2)
        found = await client.responses.retrieve(name)
        assert (found.status, found.service_tier, found.to_dict()["created_at"]) == ("queued", "flex", found.created_at)
        for _ in range(4):
            it.llm.steps.release()
        assert {(await work).output_text, (await more).output_text} == {"0 "}
        events = await gather(stream)
        assert (await poll(client, second.id)).output_text == "0 "
        assert it.llm.order == ["work", "more", "first", "second"]
        # As if it had never waited: one numbering, from the first event on.
        final = check_stream([{"type": "response.created", "sequence_number": 0, "response": found.to_dict()}, *events])
        assert final == (await client.responses.retrieve(name)).to_dict()
        assert (final["id"], final["status"], final["service_tier"]) == (name, "completed", "flex")


async def test_what_waits_too_long_expires_once_for_who_asks_and_who_follows() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(limits=Limits(silence=0.05))
        work = await it.occupy(client)
        soon: Any = {"max_wait": 0.2}
        stream, quiet = await ask(client, "a", stream=True, extra_body=soon), await ask(client, "b", extra_body=soon)
        events = await gather(stream)
        final = events[-1]["response"]
        assert (events[-1]["type"], final["status"]) == ("response.failed", "failed")
        assert (final["error"]["code"], "expired" in final["error"]["message"]) == ("rate_limit_exceeded", True)
        ended = await poll(client, quiet.id)
        assert ended.error.message == final["error"]["message"]
        assert (await client.responses.cancel(quiet.id)).to_dict() == ended.to_dict()
        # The flex queue is empty: what comes next is made, and they are not.
        it.llm.steps.release()
        await work
        later = await ask(client, "later")
        it.llm.steps.release()
        assert (await poll(client, later.id)).status == "completed"
        assert it.llm.order == ["work", "later"]


async def test_what_waits_is_cancelled_or_deleted_without_asking_a_model() -> None:
    async with open_gateways() as it:
        one, other = await it.open_gateway(), await it.open_gateway()
        work = await it.occupy(one)
        stream, deleted, last = await ask(one, "a", stream=True), await ask(one, "b"), await ask(one, "c")
        name = await begin(stream)
        cancelled: Any = await other.responses.cancel(name)
        assert (cancelled.status, cancelled.output, cancelled.error) == ("cancelled", [], None)
        assert (await gather(stream))[-1]["response"] == cancelled.to_dict()
        await other.responses.delete(deleted.id)
        for _ in range(2):
            it.llm.steps.release()
        await work
        assert (await poll(other, last.id)).status == "completed"
        assert it.llm.order == ["work", "c"]
        with pytest.raises(openai.NotFoundError):
            await one.responses.retrieve(deleted.id)


async def test_what_waits_outlives_its_gateway() -> None:
    async with open_gateways() as it:
        first = await it.open_gateway()
        work = await it.occupy(first)
        names = [(await ask(first, str(number))).id for number in range(6)]
        await it.gateways[0].aclose()
        with pytest.raises(openai.APIError):
            await work
        # While none runs, nobody asks; two that come share the work.
        for _ in range(7):
            it.llm.steps.release()
        clients = await it.open_gateway(), await it.open_gateway()
        answers = [await poll(clients[number % 2], name) for number, name in enumerate(names)]
        assert [answer.output_text for answer in answers] == ["0 "] * 6
        assert sorted(it.llm.order) == ["0", "1", "2", "3", "4", "5", "work"]


async def test_what_no_server_has_room_for_waits_again() -> None:
    async with open_gateways(refusals=2) as it:
        client = await it.open_gateway(limits=Limits(flex_pause=0.05))
        streamed = await ask(client, "a", stream=True)
        it.llm.steps.release()
        events = await gather(streamed)
        assert check_stream(events)["status"] == "completed"
        assert (it.llm.refusals, it.llm.order) == (0, ["a"])


async def test_what_ends_lets_the_next_one_begin_whatever_was_refused_before() -> None:
    """A pool's servers have less room than its processor, and refuse what comes too early."""
    async with open_gateways(capacity=8, room=2) as it:
        client, before = await it.open_gateway(), count_returned()
        names = [(await ask(client, name)).id for name in "abcdefgh"]
        await until(lambda: count_returned() - before >= 1 and len(it.llm.order) == 2)
        for _ in names:
            it.llm.steps.release()
        assert [(await poll(client, name)).status for name in names] == ["completed"] * 8
        # Each end was followed by one attempt too many at most.
        assert count_returned() - before <= 6 + 8


async def test_what_was_refused_begins_beside_what_takes_long_once_others_have_left() -> None:
    async with open_gateways(capacity=8) as it:
        client, before = await it.open_gateway(limits=Limits(flex_pause=0.05)), count_returned()
        names = [(await ask(client, name)).id for name in "abc"]
        await until(lambda: count_returned() - before >= 1 and len(it.llm.order) == 1)
        it.llm.room += 2
        # None of them has ended.
        await until(lambda: len(it.llm.order) == 3)
        for _ in names:
            it.llm.steps.release()
        assert [(await poll(client, name)).status for name in names] == ["completed"] * 3


async def test_what_no_processor_has_begun_waits_for_the_next_one() -> None:
    bus, llm = MemoryBus(), BusyLlm()
    mortal = MortalBus(bus)
    async with AsyncExitStack() as stack:
        it = WaitingGateways(llm, RemoteBus(bus), stack, SLOWER)
        await stack.enter_async_context(serve(mortal, llm, SLOWER))
        client, before = await it.open_gateway(), count_returned()
        # It believes in the dead one for some heartbeats more, and asks it.
        mortal.kill()
        names = [(await ask(client, name)).id for name in "ab"]
        await until(lambda: count_returned() > before)
        await stack.enter_async_context(serve(bus, llm, SLOWER))
        for _ in range(2):
            llm.steps.release()
        assert [(await poll(client, name)).status for name in names] == ["completed"] * 2
        assert sorted(llm.order) == ["a", "b"]


@pytest.mark.parametrize(
    ("notes", "status"),
    [
        ([ASKED_BEFORE], "failed"),
        ([ASKED_BEFORE, label_returned("dead")], "completed"),
    ],
)
async def test_what_a_dead_gateway_has_taken_is_asked_unless_a_model_may_have_been(
    notes: list[Mapping[str, str]], status: str
) -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(limits=Limits(silence=0.2))
        work = await it.occupy(client)
        taken = await ask(client, "taken", extra_body=ONCE)
        for note in notes:
            await it.bus.append(CONFIG.topics.kept(taken.id), b"", note)
        waiting = await ask(client, "waiting")
        for _ in range(3):
            it.llm.steps.release()
        await work
        assert (await poll(client, waiting.id)).status == "completed"
        ended = await poll(client, taken.id)
        assert (ended.status, "processor" in str(ended.error)) == (status, status == "failed")
        assert it.llm.order == ["work"] + ["taken"] * (status == "completed") + ["waiting"]


async def test_what_a_dead_gateway_has_taken_does_not_fail_while_nobody_has_asked_for_it() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(limits=Limits(silence=0.05))
        work = await it.occupy(client)
        taken = await ask(client, "taken", stream=True)
        name = await begin(taken)
        for _ in range(3):
            assert (await client.responses.retrieve(name)).status == "queued"
            await asyncio.sleep(0.06)
        for _ in range(2):
            it.llm.steps.release()
        await work
        assert (await gather(taken))[-1]["type"] == "response.completed"


class LateBus(OneMessageBus):
    """Of one gateway. It holds back what that says before it asks a model.

    Attributes:
        asks: set when it was about to say that.
        go: set it to pass that on.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.asks, self.go = asyncio.Event(), asyncio.Event()

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        yield LogWriter(topic, self._append_late)

    async def _append_late(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        if properties["kind"] == MAKER:
            self.asks.set()
            await self.go.wait()
        await self.append(topic, body, properties)


async def test_a_gateway_that_was_taken_for_dead_asks_no_model() -> None:
    async with open_gateways(capacity=2) as it:
        bus, late = it.bus, LateBus(it.bus)
        it.bus = late
        one = await it.open_gateway()
        made = await ask(one, "a")
        await asyncio.wait_for(late.asks.wait(), DEADLINE)
        # The broker has taken the first one for dead, and gives its message to another.
        it.bus = bus
        other = await it.open_gateway()
        await bus.publish(CONFIG.topics.flex_queue(TEXTS[0].request), late.put[0], {})
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        late.go.set()
        it.llm.steps.release()
        assert (await poll(other, made.id)).output_text == "0 "
        assert (await poll(one, made.id)).output_text == "0 "
        assert it.llm.order == ["a"]


async def test_what_its_processor_may_have_begun_is_not_begun_by_another_one() -> None:
    bus, llm = MemoryBus(), BusyLlm()
    mortal = MortalBus(bus)
    async with AsyncExitStack() as stack:
        it = WaitingGateways(llm, RemoteBus(bus), stack)
        await stack.enter_async_context(serve(mortal, llm))
        client = await it.open_gateway()
        begun = await ask(client, "begun", extra_body=ONCE)
        await asyncio.wait_for(llm.started.wait(), DEADLINE)
        mortal.kill()
        other = BusyLlm()
        await stack.enter_async_context(serve(bus, other))
        ended = await poll(client, begun.id)
        assert (ended.status, "processor" in ended.error.message) == ("failed", True)
        later = await ask(client, "later")
        other.steps.release()
        assert (await poll(client, later.id)).status == "completed"
        assert (llm.order, other.order) == (["begun"], ["later"])


async def test_what_may_wait_is_bounded() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(limits=Limits(waiting=2))
        work = await it.occupy(client)
        first, _ = await ask(client, "a"), await ask(client, "b")
        with pytest.raises(openai.RateLimitError, match="wait for room"):
            await ask(client, "c")
        # What has been cancelled makes room, whichever gateway was told.
        await client.responses.cancel(first.id)
        last = await ask(client, "d")
        for _ in range(3):
            it.llm.steps.release()
        await work
        assert (await poll(client, last.id)).status == "completed"
        assert it.llm.order == ["work", "b", "d"]


async def test_what_was_cancelled_makes_room_wherever_it_was_in_the_band() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(limits=Limits(waiting=2 * CHECKED_AT_ONCE))
        work = await it.occupy(client)
        names = [(await ask(client, str(number))).id for number in range(2 * CHECKED_AT_ONCE)]
        await client.responses.cancel(names[-1])
        with pytest.raises(openai.RateLimitError, match="wait for room"):
            await ask(client, "early")
        await ask(client, "later")
        it.llm.steps.release()
        await work


async def test_without_max_wait_nothing_waits_and_the_tier_is_named_as_ignored() -> None:
    async with open_gateways() as it:
        client = await it.open_gateway(GatewayConfig(port=0, drain=0.05))
        it.llm.steps.release()
        raw = await client.responses.with_raw_response.create(
            model=MODEL, input="1", background=True, service_tier="flex", extra_body={"max_wait": 5}
        )
        assert raw.headers["X-Tokengrid-Ignored"] == "max_wait, service_tier"
        made = raw.parse()
        assert (made.service_tier, (await poll(client, made.id)).status) == ("default", "completed")


async def test_what_is_no_message_of_the_band_is_passed_over() -> None:
    async with open_gateways() as it:
        client, topic = await it.open_gateway(), CONFIG.topics.flex_queue(TEXTS[0].request)
        work = await it.occupy(client)
        made = await ask(client, "a")
        for sent in (b"{", forge("../a b"), forge("x" * 5000), forge("nobodys"), forge(made.id)):
            await it.bus.publish(topic, sent, {})
        last = await ask(client, "b")
        for _ in range(3):
            it.llm.steps.release()
        await work
        assert [(await poll(client, each.id)).status for each in (last, made)] == ["completed"] * 2


def forge(name: str) -> bytes:
    """A message for an answer that is not this key's, if it is one at all."""
    nobody, empty = "stranger", msgspec.Raw(b"{}")
    return encode(QueuedJob(name, time.time() + 60, nobody, "default", "text-completion", empty, nobody, "r"))
