"""Responses in the background, as OpenAI's own SDK uses them: polled, followed, cancelled, deleted."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import openai
import pytest
from typing_extensions import override

from tests.fakes.counting_llm import SteppedLlm
from tests.fakes.erased_logs import ANY, ErasedLogs
from tests.fakes.failing_llm import FailingLlm
from tests.fakes.passing_bus import PassingBus
from tests.flow.background_asking import (
    DEADLINE,
    MANY,
    RUNNING,
    begin,
    client_of,
    gather,
    open_pair,
    poll,
    show,
    until_told,
)
from tests.flow.open_gateway import another_gateway, open_gateway
from tests.flow.open_responses import MODEL
from tests.flow.responses_stream import check_stream
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus import Bus, LogWriter
from tg_base.bus.memory import MemoryBus
from tg_base.llm import ProviderOptions
from tg_gateway.access import Limits
from tg_gateway.jobs import JobLogs, JobStore
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.log import ALIVE, CANCEL, HEAD, label, label_asked, label_end, label_first
from tg_schema.errors import NotFound
from tg_schema.topics import Topics


async def test_a_response_is_polled_through_any_gateway() -> None:
    async with open_pair() as it:
        made = await it.one.responses.create(model=MODEL, input="3", background=True, metadata={"a": "b"})
        assert (made.status, made.background, made.output, made.to_dict()["store"]) == ("queued", True, [], True)
        for client in (it.one, it.other):
            found = await client.responses.retrieve(made.id)
            assert found.status in RUNNING
            assert found.to_dict() | {"status": "queued"} == made.to_dict()
        it.step(3)
        final = await poll(it.other, made.id)
        assert (final.status, final.output_text, final.id) == ("completed", "0 1 2 ", made.id)
        assert final.usage is not None
        assert final.usage.output_tokens == 3
        assert (await it.one.responses.retrieve(made.id)).to_dict() == final.to_dict()
        with pytest.raises(openai.BadRequestError, match="not streamed"):
            await it.other.responses.retrieve(made.id, stream=True)


async def test_a_response_is_queued_until_a_model_works_on_it() -> None:
    llm = SteppedLlm(options=ProviderOptions(capacity=1))
    async with open_gateway(llm=llm) as opened, client_of(opened.gateway) as client:
        first = await client.responses.create(model=MODEL, input="1", background=True)
        await llm.started.wait()
        stream = aiter(await client.responses.create(model=MODEL, input="1", background=True, stream=True))
        async with asyncio.timeout(DEADLINE):
            told = [(await anext(stream)).to_dict() for _ in range(2)]
            name = show(told[0])["id"]
            assert [event["type"] for event in told] == ["response.created", "response.queued"]
            assert {show(event)["status"] for event in told} == {"queued"}
            assert (await client.responses.retrieve(name)).status == "queued"
            llm.step.release()
            assert (await poll(client, first.id)).status == "completed"
            # Told before the model says anything.
            told.append((await anext(stream)).to_dict())
            assert (told[-1]["type"], show(told[-1])["status"]) == ("response.in_progress", "in_progress")
            assert (await poll(client, name, {"queued"})).status == "in_progress"
            llm.step.release()
            told += [event.to_dict() async for event in stream]
        assert check_stream(told)["status"] == "completed"


async def test_who_leaves_does_not_stop_it_and_anybody_follows_it() -> None:
    async with open_pair() as it:
        stream = await it.one.responses.create(model=MODEL, input="6", background=True, stream=True)
        name = await begin(stream)
        it.step(2)
        await stream.close()
        followers = [await client.responses.retrieve(name, stream=True) for client in (it.one, it.other)]
        late = await it.other.responses.retrieve(name, stream=True, starting_after=4)
        gathering = [asyncio.create_task(gather(each)) for each in (*followers, late)]
        it.step(4)
        one, other, rest = await asyncio.gather(*gathering)
        final = check_stream(one)
        assert (one, one[5:]) == (other, rest)
        assert final["output"][0]["content"][0]["text"] == "0 1 2 3 4 5 "
        assert (await it.one.responses.retrieve(name)).to_dict() == final
        again = await it.one.responses.retrieve(name, stream=True, starting_after=len(one) - 3)
        assert await gather(again) == one[-2:]
        none = await it.one.responses.retrieve(name, stream=True, starting_after=len(one) - 1)
        assert await gather(none) == []


async def test_cancelling_stops_the_model_from_any_gateway_and_again_changes_nothing() -> None:
    async with open_pair() as it:
        stream = await it.one.responses.create(model=MODEL, input=MANY, background=True, stream=True)
        name = await begin(stream)
        it.step(3)
        await until_told(stream)
        cancelled: Any = await it.other.responses.cancel(name)
        # The answer comes when the model has stopped: further steps are of no use.
        await asyncio.wait_for(it.llm.stopped.wait(), DEADLINE)
        it.step(100)
        assert (cancelled.status, cancelled.error) == ("cancelled", None)
        assert it.llm.generated <= 3
        assert cancelled.output[0].status == "incomplete"
        rest = await gather(stream)
        assert (rest[-1]["type"], rest[-1]["response"]) == ("response.failed", cancelled.to_dict())
        for client in (it.one, it.other):
            assert (await client.responses.cancel(name)).to_dict() == cancelled.to_dict()
            assert (await client.responses.retrieve(name)).to_dict() == cancelled.to_dict()
        with pytest.raises(openai.BadRequestError, match="is cancelled") as raised:
            await it.one.responses.create(model=MODEL, input="1", previous_response_id=name)
        assert raised.value.param == "previous_response_id"


async def test_deleting_one_that_runs_stops_the_model_and_breaks_its_streams() -> None:
    async with open_pair() as it:
        made = await it.one.responses.create(model=MODEL, input=MANY, background=True)
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        await it.other.responses.delete(made.id)
        await asyncio.wait_for(it.llm.stopped.wait(), DEADLINE)
        for client in (it.one, it.other):
            for asking in (client.responses.retrieve(made.id), client.responses.cancel(made.id)):
                with pytest.raises(openai.NotFoundError):
                    await asking
        it.llm.stopped.clear()
        stream = await it.one.responses.create(model=MODEL, input=MANY, background=True, stream=True)
        name = await begin(stream)
        await until(lambda: len(it.llm.requests) == 2)
        await it.other.responses.delete(name)
        with pytest.raises(openai.APIConnectionError):
            await gather(stream)
        await asyncio.wait_for(it.llm.stopped.wait(), DEADLINE)
        assert it.llm.generated == 0
        it.step(1)
        await poll(it.one, (await it.one.responses.create(model=MODEL, input="1", background=True)).id)
        for erased in (made.id, name):
            assert await it.opened.bus.read(Topics().kept(erased)) == ()


async def test_only_what_runs_in_the_background_is_cancelled() -> None:
    async with open_pair() as it:
        it.step(1)
        said = await it.one.responses.create(model=MODEL, input="1", store=True)
        with pytest.raises(openai.BadRequestError, match="background: true"):
            await it.one.responses.cancel(said.id)


async def test_a_conversation_goes_on_from_one_that_has_ended() -> None:
    async with open_pair() as it:
        first = await it.one.responses.create(model=MODEL, input="2", background=True)
        with pytest.raises(openai.BadRequestError, match=r"is (queued|in_progress)") as raised:
            await it.other.responses.create(model=MODEL, input="1", previous_response_id=first.id)
        assert raised.value.param == "previous_response_id"
        it.step(3)
        await poll(it.one, first.id)
        second = await it.other.responses.create(model=MODEL, input="1", previous_response_id=first.id, background=True)
        listed: Any = [item async for item in it.one.responses.input_items.list(second.id, order="asc")]
        assert [item.content[0].text for item in listed] == ["2", "0 1 ", "1"]
        await poll(it.one, second.id)
        assert [turn.text for turn in it.llm.requests[-1].messages] == ["2", "0 1 ", "1"]


async def test_a_failure_is_kept_and_its_stream_has_an_orderly_end() -> None:
    llm = FailingLlm()
    async with open_gateway(llm=llm) as opened, client_of(opened.gateway) as client:
        stream = await client.responses.create(model=MODEL, input="2", background=True, stream=True)
        events = await gather(stream)
        final = check_stream(events)
        assert (final["status"], final["error"]["code"]) == ("failed", "server_error")
        assert (await client.responses.retrieve(final["id"])).to_dict() == final
        assert await gather(await client.responses.retrieve(final["id"], stream=True)) == events


async def test_what_is_refused_is_not_kept() -> None:
    async with open_pair(Limits(background=2)) as it:
        running = [await it.one.responses.create(model=MODEL, input=MANY, background=True) for _ in range(2)]
        with pytest.raises(openai.RateLimitError, match="in the background"):
            await it.one.responses.create(model=MODEL, input="refused", background=True)
        await it.one.responses.cancel(running[0].id)
        await it.one.responses.create(model=MODEL, input=MANY, background=True)
        for fields in ({"model": "nobody"}, {"model": MODEL, "extra_body": {"background": True, "store": False}}):
            more: Any = fields
            with pytest.raises(openai.APIStatusError):
                await it.one.responses.create(input="refused", background=True, **more)
        assert {request.prompt for request in it.llm.requests} == {MANY}


async def test_few_follow_at_once() -> None:
    async with open_pair(Limits(followers=1)) as it:
        stream = await it.one.responses.create(model=MODEL, input="1", background=True, stream=True)
        name = await begin(stream)
        following = await it.one.responses.retrieve(name, stream=True)
        with pytest.raises(openai.RateLimitError, match="follow"):
            await it.one.responses.retrieve(name, stream=True)
        # Who begins one is not refused its stream: it would not know the name of what runs.
        other = await it.one.responses.create(model=MODEL, input="1", background=True, stream=True)
        await it.one.responses.delete(await begin(other))
        it.step(1)
        await gather(following)
        assert (await gather(stream))[-1]["type"] == "response.completed"
        again = await gather(await it.one.responses.retrieve(name, stream=True))
        assert check_stream(again)["status"] == "completed"


async def test_a_refused_field_of_a_running_stream_is_a_refusal() -> None:
    async with open_pair() as it:
        stream = await it.one.responses.create(
            model=MODEL, input="1", background=True, stream=True, extra_body={"odd": 1}
        )
        assert stream.response.headers["X-Tokengrid-Ignored"] == "odd"
        assert stream.response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        name = await begin(stream)
        for after in ("x", "1.5"):
            fields: Any = {"starting_after": after}
            with pytest.raises(openai.BadRequestError) as raised:
                await it.other.responses.retrieve(name, stream=True, **fields)
            assert raised.value.param == "starting_after"


class SlowSigns(PassingBus):
    """Signs of life arrive late, also of a process that has given up: as what a broker's client still has to send.

    Attributes:
        sent: set when one is on its way.
        arriving: an open gate for them.
        underway: those that were sent.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.sent = asyncio.Event()
        self.arriving = asyncio.Event()
        self.underway: list[asyncio.Task[None]] = []

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        async with self._bus.open_log(topic) as log:

            async def append(_: str, body: bytes, properties: Mapping[str, str]) -> None:
                if properties["kind"] == ALIVE:
                    self.sent.set()
                    self.underway.append(asyncio.create_task(self._arrive(log, properties)))
                    await asyncio.shield(self.underway[-1])
                else:
                    await log.append(body, properties)

            yield LogWriter(topic, append)

    async def _arrive(self, log: LogWriter, properties: Mapping[str, str]) -> None:
        await self.arriving.wait()
        await log.append(b"", properties)


async def test_a_sign_of_life_of_a_suspended_gateway_does_not_bring_back_what_was_deleted() -> None:
    llm, bus = SteppedLlm(), MemoryBus()
    slow = SlowSigns(bus)
    limits = Limits(silence=0.2)
    async with (
        open_gateway(llm=llm, bus=bus, limits=Limits(all_background=0)) as opened,
        client_of(opened.gateway) as other,
    ):
        async with another_gateway(slow, limits=limits) as suspended, client_of(suspended) as one:
            made = await one.responses.create(model=MODEL, input=MANY, background=True)
            topic = Topics().kept(made.id)
            await asyncio.wait_for(llm.started.wait(), DEADLINE)
            await asyncio.wait_for(slow.sent.wait(), DEADLINE)
            # It was taken for dead; its sign is on its way when it finds that out.
            await bus.append(topic, b"", label_end("cancelled"))
            await asyncio.wait_for(llm.stopped.wait(), DEADLINE)
            await other.responses.delete(made.id)
            slow.arriving.set()
        await asyncio.gather(*slow.underway)
        assert await bus.read(topic) == ()


OWNER, NAME = "", "name"
Reader = Callable[[JobStore, JobLogs], Awaitable[object]]


async def _follow(store: JobStore, _: JobLogs) -> None:
    async with aclosing(store.of(None).follow(NAME)) as steps:
        async for _step in steps:
            pass


async def _poll(store: JobStore, logs: JobLogs) -> None:
    while True:
        await store.of(None).read(NAME)
        await asyncio.sleep(logs.silence)


async def _cancel(store: JobStore, _: JobLogs) -> None:
    await store.of(None).cancel(NAME)


async def _take(_: JobStore, logs: JobLogs) -> None:
    """It is deleted while another process goes on with it."""
    claim = Claim(logs, OWNER, NAME)
    bus = logs.bus
    assert isinstance(bus, ErasedLogs)
    bus.kind = ""
    await claim.load()
    bus.kind = ANY
    await claim.take()
    assert not claim.running


async def _reload(_: JobStore, logs: JobLogs) -> None:
    """A client cancels what pauses, and deletes it while the process that has its message writes its end."""
    claim = Claim(logs, OWNER, NAME)
    bus = logs.bus
    assert isinstance(bus, ErasedLogs)
    bus.kind = ""
    await claim.load()
    await bus.append(logs.topic(NAME), b"", label(CANCEL))
    bus.kind = ANY
    await claim.load()
    assert not claim.running


BEGUN = [label_first(HEAD, OWNER, 1000.0)]
WAITING = [label_first(HEAD, OWNER, 1000.0, waits=500.0)]
EXPIRED = [label_first(HEAD, OWNER, 1000.0, waits=-1.0)]
LOST = [
    label_first(HEAD, OWNER, 1000.0, waits=500.0),
    label_asked("gone"),
]


@pytest.mark.parametrize(
    ("entries", "ask"),
    [
        pytest.param(BEGUN, _follow, id="followed, silent"),
        pytest.param(BEGUN, _poll, id="polled, silent"),
        pytest.param(BEGUN, _cancel, id="cancelled"),
        pytest.param(LOST, _follow, id="lost while it is followed"),
        pytest.param(LOST, _poll, id="lost while it is polled"),
        pytest.param(LOST, _take, id="adopted"),
        pytest.param(EXPIRED, _follow, id="expired while it is followed"),
        pytest.param(EXPIRED, _poll, id="expired"),
        pytest.param(WAITING, _cancel, id="cancelled while it waits"),
        pytest.param(WAITING, _reload, id="cancelled while it pauses"),
    ],
)
@in_virtual_time
async def test_what_a_reader_says_of_a_deleted_response_is_erased(
    entries: list[Mapping[str, str]], ask: Reader
) -> None:
    bus, topics = ErasedLogs(MemoryBus()), Topics()
    logs = JobLogs(bus, topics, lambda: 0.0, silence=0.2)
    for entry in entries:
        await bus.append(topics.kept(NAME), b"", entry)
    bus.kind = ANY
    with suppress(NotFound):
        await ask(JobStore(logs), logs)
    assert not bus.kind
    assert await bus.read(topics.kept(NAME)) == ()
    await bus.aclose()
