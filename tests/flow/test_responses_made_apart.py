"""Responses in the background that a process of the part `jobs` makes: its gateways only read them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import openai
import pytest
from aiohttp import ClientSession
from msgspec.structs import replace
from openai import AsyncOpenAI
from structlog.testing import capture_logs
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.failing_llm import FailingLlm
from tests.fakes.passing_bus import PassingBus
from tests.flow.background_asking import DEADLINE, MANY, begin, client_of, gather, poll, until_told
from tests.flow.kept_streams import DOORS, read_all, resume
from tests.flow.kept_streams import begin as begin_kept
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT, PROMPTS, QUEUES, TEXTS
from tests.flow.open_responses import MODEL
from tests.flow.responses_stream import check_stream
from tests.flow.test_live import KEYED, see
from tests.until import until
from tg_base.bus import Bus, Entry, LogWriter
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import Config, GatewayConfig, Prepare
from tg_base.runtime import start_task
from tg_base.server import Host, Processor, ServeContext
from tg_client import TgClient
from tg_gateway.access import Limits
from tg_gateway.app import Gateway
from tg_gateway.jobs.log import MAKER, QUEUED, kind_of
from tg_gateway.jobs_kind import JobsKind
from tg_schema.live import LiveDocument

Step = Literal["log", "request", "asked"]
"""What a process does before a model is asked: it opens the log, publishes the request, and logs where it is made."""
WAITING = GatewayConfig(port=0, drain=0.05, max_wait=3600)


@dataclass
class Apart:
    """A model that says a word for each step, and what is open beside it."""

    bus: Bus
    llm: CountingLlm
    exit: AsyncExitStack

    async def open_gateway(self, config: GatewayConfig = ON_ANY_PORT) -> tuple[AsyncOpenAI, AsyncExitStack]:
        """One more, which knows the processes of the part `jobs`; a client of it, and what ends it."""
        stack = await self.exit.enter_async_context(AsyncExitStack())
        requestor = await stack.enter_async_context(Requestor(self.bus, CONFIG.topics, queues=QUEUES))
        gateway = await stack.enter_async_context(Gateway(config, requestor, TEXTS + PROMPTS))
        await until(lambda: bool(requestor.presence.serving(CONFIG.topics.jobs(TEXTS[0].flow))))
        return await stack.enter_async_context(client_of(gateway)), stack

    async def open_jobs(
        self,
        limits: Limits | None = None,
        bus: Bus | None = None,
        flows: Any = CONFIG.flows,
        gateway: GatewayConfig = WAITING,
        edits: list[Prepare] | None = None,
    ) -> AsyncExitStack:
        """One more process of the part `jobs`; what ends it. `edits` gets what prepares an edit of its file."""
        prepares = [] if edits is None else edits

        def follow(prepare: Prepare) -> AbstractContextManager[None]:
            prepares.append(prepare)
            return nullcontext()

        stack, bus = await self.exit.enter_async_context(AsyncExitStack()), bus or self.bus
        host = await stack.enter_async_context(Host(bus, CONFIG.topics))
        context = ServeContext(Config(gateway=gateway, flows=flows), bus, follow, host=host)
        await stack.enter_async_context(JobsKind(limits).serve(context))
        return stack

    def has_said(self, words: int) -> bool:
        """Whether the model has said so many words."""
        return self.llm.generated == words

    def step(self, words: int) -> None:
        """Let the model say more words."""
        assert self.llm.step is not None
        for _ in range(words):
            self.llm.step.release()


def root_of(client: AsyncOpenAI) -> str:
    """The base URL of its gateway."""
    return str(client.base_url.join("/"))


@asynccontextmanager
async def open_apart(llm: CountingLlm | None = None) -> AsyncIterator[Apart]:
    """Neither a gateway nor a process of the part `jobs` is open yet."""
    bus, llm = MemoryBus(), llm or CountingLlm()
    llm.step = asyncio.Semaphore(0)
    async with Processor(bus, CONFIG.topics, llm, TEXTS, models=(llm.model,), grace=0.05), AsyncExitStack() as stack:
        yield Apart(bus, llm, stack)
    await bus.aclose()


async def test_what_runs_outlives_its_gateway() -> None:
    async with open_apart() as it:
        await it.open_jobs()
        (one, gateway), (other, _) = await it.open_gateway(), await it.open_gateway()
        stream = await one.responses.create(model=MODEL, input="5", background=True, stream=True)
        name, quiet = await begin(stream), await one.responses.create(model=MODEL, input="5", background=True)
        it.step(3)
        await until_told(stream)
        await gateway.aclose()
        it.step(7)
        final = check_stream(await gather(await other.responses.retrieve(name, stream=True)))
        assert final["output"][0]["content"][0]["text"] == "0 1 2 3 4 "
        assert (await poll(other, quiet.id)).output_text == "0 1 2 3 4 "
        assert (await other.responses.retrieve(name)).to_dict() == final
        # Each was asked for once, and its message is gone.
        assert len(it.llm.requests) == 2
        await it.open_jobs()
        await poll(other, (await other.responses.create(model=MODEL, input="0", background=True)).id)
        assert len(it.llm.requests) == 3


@pytest.mark.parametrize("erases", [True, False])
async def test_any_gateway_stops_it(erases: bool) -> None:
    async with open_apart() as it:
        await it.open_jobs()
        (one, _), (other, _) = await it.open_gateway(), await it.open_gateway()
        stream = await one.responses.create(model=MODEL, input=MANY, background=True, stream=True)
        name = await begin(stream)
        it.step(1)
        await until_told(stream)
        ended: Any = await (other.responses.delete if erases else other.responses.cancel)(name)
        await asyncio.wait_for(it.llm.stopped.wait(), DEADLINE)
        it.step(10)
        assert it.llm.generated == 1
        if not erases:
            assert (ended.status, ended.output_text) == ("cancelled", "0 ")
            assert (await gather(stream))[-1]["response"] == ended.to_dict()


def maker_of(document: LiveDocument) -> list[int]:
    """The streams of each process of the part `jobs` in a live view."""
    return [row.streams for row in document.gateways.values() if row and row.name.endswith(" jobs")]


async def test_an_operator_of_any_gateway_sees_and_stops_it() -> None:
    async with open_apart() as it:
        await it.open_jobs()
        client, _ = await it.open_gateway()
        stream = await client.responses.create(model=MODEL, input=MANY, background=True, stream=True)
        name = await begin(stream)
        it.step(3)
        async with TgClient(root_of(client), retries=0) as viewer:
            document = await see(viewer, lambda it: any(row and row.tokens for row in it.streams.values()))
            ((running, row),) = document.streams.items()
            assert row is not None
            assert (row.flow, row.service, row.model, row.key) == (
                *(TEXTS[0].flow, "text-completion", it.llm.model, "anybody"),
            )
            assert (maker_of(document), document.totals["streams"]) == ([1], 1)
            await viewer.stop_stream(running)
            await asyncio.wait_for(it.llm.stopped.wait(), DEADLINE)
            final = await poll(client, name)
            assert final.status == "failed"
            assert "an operator has stopped" in final.error.message
            assert not (await see(viewer, lambda it: not it.streams)).totals["streams"]


async def test_a_keyed_process_shows_nothing_to_whom_nobody_has_checked() -> None:
    async with open_apart() as it:
        edits: list[Prepare] = []
        await it.open_jobs(gateway=replace(KEYED, max_wait=3600), edits=edits)
        client, _ = await it.open_gateway()
        made = await client.responses.create(model=MODEL, input=MANY, background=True)
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        async with TgClient(root_of(client), retries=0) as viewer:
            assert len((await viewer.live()).gateways) == 1
            # An edit that leaves no keys opens no door.
            (prepare,) = edits
            commit = prepare(Config(gateway=WAITING, flows=CONFIG.flows))
            assert not isinstance(commit, Awaitable)
            commit()
            document = await viewer.live()
            assert (len(document.gateways), document.streams) == (1, {})
        await client.responses.cancel(made.id)


async def test_what_it_refuses_is_a_refusal_and_leaves_no_log() -> None:
    async with open_apart() as it:
        await it.open_jobs(limits=Limits(background=1))
        client, _ = await it.open_gateway()
        running = await client.responses.create(model=MODEL, input=MANY, background=True)
        with pytest.raises(openai.RateLimitError, match="in the background") as raised:
            await client.responses.create(model=MODEL, input="refused", background=True)
        assert raised.value.response.headers["Retry-After"] == "1"
        with pytest.raises(openai.BadRequestError, match="temperature") as wrong:
            await client.responses.create(model=MODEL, input="1", temperature=-1, background=True)
        assert wrong.value.param == "temperature"
        await client.responses.cancel(running.id)
        it.step(1)
        assert (await poll(client, (await client.responses.create(model=MODEL, input="1", background=True)).id)).output
        assert {request.prompt for request in it.llm.requests} == {MANY, "1"}


async def test_what_fails_has_failed_for_who_follows() -> None:
    async with open_apart(FailingLlm()) as it:
        await it.open_jobs()
        client, _ = await it.open_gateway()
        stream = await client.responses.create(model=MODEL, input="2", background=True, stream=True)
        it.step(2)
        final = check_stream(await gather(stream))
        assert (final["status"], final["error"]["code"]) == ("failed", "server_error")


async def test_what_waits_is_made_apart_too_and_by_a_gateway_once_nobody_else_lives() -> None:
    async with open_apart() as it:
        jobs = await it.open_jobs()
        client, _ = await it.open_gateway(WAITING)
        flex: Any = {"background": True, "service_tier": "flex"}
        first = await client.responses.create(model=MODEL, input="1", **flex)
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        it.step(1)
        assert (await poll(client, first.id)).output_text == "0 "
        running = await client.responses.create(model=MODEL, input="2", background=True)
        await until(lambda: len(it.llm.requests) == 2)
        await jobs.aclose()
        it.step(2)
        assert (await poll(client, running.id)).output_text == "0 1 "
        second = await client.responses.create(model=MODEL, input="1", **flex)
        it.step(1)
        assert (await poll(client, second.id)).output_text == "0 "
        assert len(it.llm.requests) == 3


@pytest.mark.parametrize("tier", ["default", "flex"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_what_runs_outlives_the_process_that_makes_it(streamed: bool, tier: Any) -> None:
    async with open_apart() as it:
        first = await it.open_jobs()
        client, _ = await it.open_gateway(WAITING)
        made: Any = await client.responses.create(
            model=MODEL, input="9", background=True, stream=streamed, service_tier=tier
        )
        name = await begin(made) if streamed else made.id
        for said in (2, 5):
            it.step(said - it.llm.generated)
            await until(partial(it.has_said, said))
            if streamed or tier == "default":
                # Of a whole answer that may wait again nothing is told before its end.
                await poll(client, name, {"queued"})
            second = await it.open_jobs()
            await first.aclose()
            first = second
        it.step(4)
        final = await poll(client, name)
        assert (final.status, final.output_text) == ("completed", "0 1 2 3 4 5 6 7 8 ")
        assert (len(it.llm.requests), it.llm.generated) == (1, 9)
        if streamed:
            events = await gather(await client.responses.retrieve(name, stream=True))
            assert check_stream(events) == final.to_dict()
            assert (await gather(made))[-1] == events[-1]


class _Dying(PassingBus):
    """That of a process that ends before it has said where a model is asked.

    Attributes:
        asked: set when it was about to.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.asked = asyncio.Event()

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        async with super().open_log(topic) as log:

            async def append(_: str, body: bytes, properties: Mapping[str, str]) -> None:
                if kind_of(Entry(body, properties, "")) == MAKER:
                    self.asked.set()
                    await asyncio.Event().wait()
                await log.append(body, properties)

            yield LogWriter(topic, append)


async def test_what_no_model_was_asked_for_is_asked_by_the_next_process_at_once() -> None:
    async with open_apart() as it:
        dying = _Dying(it.bus)
        first = await it.open_jobs(bus=dying)
        client, _ = await it.open_gateway()
        made = await client.responses.create(model=MODEL, input="1", background=True)
        await asyncio.wait_for(dying.asked.wait(), DEADLINE)
        assert not it.llm.requests
        await it.open_jobs()
        await first.aclose()
        it.step(1)
        final = await poll(client, made.id)
        assert (final.status, final.output_text, len(it.llm.requests)) == ("completed", "0 ", 1)


class _Leaving(PassingBus):
    """That of a process that is told to end while it waits for the bus.

    Args:
        bus: the one behind it.
        step: what takes so long.

    Attributes:
        waits: set when it waits.
        free: set it to go on. What was sent arrives then, also of a process that is gone.
    """

    def __init__(self, bus: Bus, step: Step) -> None:
        super().__init__(bus)
        self._step = step
        self.waits = asyncio.Event()
        self.free = asyncio.Event()
        self._sent = set[asyncio.Task[None]]()

    async def _pass(self, step: Step) -> None:
        if step == self._step:
            self.waits.set()
            await self.free.wait()

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        if topic == TEXTS[0].request:
            await self._pass("request")
        await super().publish(topic, body, properties)

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        await self._pass("log")
        async with super().open_log(topic) as log:

            async def send(body: bytes, properties: Mapping[str, str]) -> None:
                if kind_of(Entry(body, properties, "")) == MAKER:
                    await self._pass("asked")
                await log.append(body, properties)

            async def append(_: str, body: bytes, properties: Mapping[str, str]) -> None:
                await asyncio.shield(start_task(self._sent, send(body, properties)))

            yield LogWriter(topic, append)


@pytest.mark.parametrize("tier", ["default", "flex"])
@pytest.mark.parametrize("step", get_args(Step))
async def test_what_a_process_was_about_to_ask_when_it_was_told_to_end_is_made_once(step: Step, tier: Any) -> None:
    async with open_apart() as it:
        leaving = _Leaving(it.bus, step)
        first = await it.open_jobs(bus=leaving)
        client, _ = await it.open_gateway(WAITING)
        asking = asyncio.create_task(
            client.responses.create(model=MODEL, input="2", background=True, service_tier=tier)
        )
        await asyncio.wait_for(leaving.waits.wait(), DEADLINE)
        async with Requestor(it.bus, CONFIG.topics, queues=QUEUES) as requestor:
            makers = partial(requestor.presence.serving, CONFIG.topics.jobs(TEXTS[0].flow))
            await until(lambda: len(makers()) == 1)
            ending = asyncio.create_task(first.aclose())
            # By now it asks nobody any more.
            await until(lambda: not makers())
            leaving.free.set()
            await it.open_jobs()
            await ending
        it.step(2)
        final = await poll(client, (await asking).id)
        assert (final.status, final.output_text) == ("completed", "0 1 ")
        assert (len(it.llm.requests), it.llm.generated) == (1, 2)


class _Unconfirmed(PassingBus):
    """Has what says where a model is asked, and does not confirm that.

    Attributes:
        asked: set when it has that.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.asked = asyncio.Event()

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        async with super().open_log(topic) as log:

            async def append(_: str, body: bytes, properties: Mapping[str, str]) -> None:
                await log.append(body, properties)
                if kind_of(Entry(body, properties, "")) == MAKER:
                    self.asked.set()
                    await asyncio.Event().wait()

            yield LogWriter(topic, append)


async def test_what_ends_while_its_model_is_asked_for_has_that_end() -> None:
    async with open_apart() as it:
        unconfirmed = _Unconfirmed(it.bus)
        jobs = await it.open_jobs(bus=unconfirmed)
        client, _ = await it.open_gateway()
        made = await client.responses.create(model=MODEL, input="1", background=True)
        await asyncio.wait_for(unconfirmed.asked.wait(), DEADLINE)
        async with TgClient(root_of(client), retries=0) as viewer:
            (running,) = (await see(viewer, lambda it: bool(it.streams))).streams
            with capture_logs() as logs:
                await viewer.stop_stream(running)
                final = await poll(client, made.id)
                await jobs.aclose()
        assert (final.status, it.llm.requests) == ("failed", [])
        assert "an operator has stopped" in final.error.message
        # Nobody went on with it.
        assert [each["outcome"] for each in logs if each.get("door") == "background"] == ["cancelled"]


async def test_a_flow_that_an_edit_adds_is_made_apart_too() -> None:
    async with open_apart() as it:
        edits: list[Prepare] = []
        await it.open_jobs(flows={}, edits=edits)
        (prepare,) = edits
        commit = prepare(Config(gateway=WAITING, flows=CONFIG.flows))
        assert not isinstance(commit, Awaitable)
        commit()
        client, _ = await it.open_gateway()
        made = await client.responses.create(model=MODEL, input="1", background=True)
        it.step(1)
        assert (await poll(client, made.id)).output_text == "0 "


class _Held(PassingBus):
    """Takes no note that a service is asked until it is told to."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.free = asyncio.Event()

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        async with super().open_log(topic) as log:

            async def append(_: str, body: bytes, properties: Mapping[str, str]) -> None:
                if kind_of(Entry(body, properties, "")) == QUEUED:
                    await self.free.wait()
                await log.append(body, properties)

            yield LogWriter(topic, append)


async def test_a_stream_that_is_kept_outlives_its_gateway_and_the_process_that_makes_it() -> None:
    async with open_apart() as it:
        jobs = await it.open_jobs()
        (one, gateway), (other, _) = await it.open_gateway(), await it.open_gateway()
        async with (
            AsyncExitStack() as connections,
            ClientSession(str(one.base_url.join("/"))) as first,
            ClientSession(str(other.base_url.join("/"))) as second,
        ):
            begun = [await begin_kept(connections, first, asking("9")) for asking in DOORS]
            await until(lambda: len(it.llm.requests) == len(begun))
            # All wait for a step by now, so each gets one.
            it.step(len(begun))
            for reader in begun:
                await reader.until(b"0 ")
            await gateway.aclose()
            # Each log says by now where the model works.
            await it.open_jobs()
            await jobs.aclose()
            readers = [await resume(connections, second, each.name, each.numbers[-1]) for each in begun]
            it.step(8 * len(begun))
            rests = [await reader.until_end() for reader in readers]
            wholes = [await read_all(second, reader.name) for reader in begun]
        for reader, rest, whole in zip(begun, rests, wholes, strict=True):
            assert reader.events + rest == whole
            assert [word in whole for word in (b"0 ", b"8 ", b"error")] == [True, True, False]
        assert (len(it.llm.requests), it.llm.generated) == (len(begun), 9 * len(begun))


async def test_a_client_that_leaves_before_it_has_the_id_stops_it() -> None:
    async with open_apart() as it:
        held = _Held(it.bus)
        await it.open_jobs(bus=held)
        client, _ = await it.open_gateway()
        asking = asyncio.create_task(client.responses.create(model=MODEL, input=MANY, background=True))
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        held.free.set()
        await asyncio.wait_for(it.llm.stopped.wait(), DEADLINE)
        assert it.llm.generated == 0
