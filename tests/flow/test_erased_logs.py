"""Logs of responses that are deleted while somebody still writes there: nothing of them comes back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress

import pytest
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.passing_bus import PassingBus
from tests.flow.background_asking import DEADLINE, MANY, client_of
from tests.flow.open_gateway import ON_ANY_PORT, PROMPTS, QUEUES, TEXTS, open_gateway
from tests.flow.open_responses import MODEL
from tests.virtual_time import in_virtual_time
from tg_base.bus import Bus, LogWriter
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_gateway.access import Limits
from tg_gateway.app import Gateway
from tg_gateway.jobs import JobLogs, JobStore
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.log import ALIVE, CANCEL, HEAD, label, label_asked, label_end, label_first
from tg_schema.errors import NotFound
from tg_schema.topics import Topics


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


class ErasingBus(PassingBus):
    """Somebody erases the log just before the next entry arrives there, if it is `armed`."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.armed = False

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        if self.armed:
            self.armed = False
            await self._bus.erase(topic)
        return await super().append(topic, body, properties)


async def test_a_sign_of_life_of_a_suspended_gateway_does_not_bring_back_what_was_deleted() -> None:
    llm, bus = CountingLlm(), MemoryBus()
    llm.step = asyncio.Semaphore(0)
    slow = SlowSigns(bus)
    limits = Limits(silence=0.2)
    async with (
        open_gateway(llm=llm, bus=bus, limits=Limits(all_background=0)) as opened,
        Requestor(slow, Topics(), queues=QUEUES) as requestor,
        client_of(opened.gateway) as other,
    ):
        suspended = Gateway(ON_ANY_PORT, requestor, TEXTS + PROMPTS, limits=limits)
        async with suspended, client_of(suspended) as one:
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
    assert isinstance(bus, ErasingBus)
    bus.armed = False
    await claim.load()
    bus.armed = True
    await claim.take()
    assert not claim.running


async def _reload(_: JobStore, logs: JobLogs) -> None:
    """A client cancels what pauses, and deletes it while the process that has its message writes its end."""
    claim = Claim(logs, OWNER, NAME)
    bus = logs.bus
    assert isinstance(bus, ErasingBus)
    bus.armed = False
    await claim.load()
    await bus.append(logs.topic(NAME), b"", label(CANCEL))
    bus.armed = True
    await claim.load()
    assert not claim.running


RUNNING = [label_first(HEAD, OWNER, 1000.0)]
WAITING = [label_first(HEAD, OWNER, 1000.0, waits=500.0)]
EXPIRED = [label_first(HEAD, OWNER, 1000.0, waits=-1.0)]
LOST = [
    label_first(HEAD, OWNER, 1000.0, waits=500.0),
    label_asked("gone"),
]


@pytest.mark.parametrize(
    ("entries", "ask"),
    [
        pytest.param(RUNNING, _follow, id="followed, silent"),
        pytest.param(RUNNING, _poll, id="polled, silent"),
        pytest.param(RUNNING, _cancel, id="cancelled"),
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
    bus, topics = ErasingBus(MemoryBus()), Topics()
    logs = JobLogs(bus, topics, lambda: 0.0, silence=0.2)
    for entry in entries:
        await bus.append(topics.kept(NAME), b"", entry)
    bus.armed = True
    with suppress(NotFound):
        await ask(JobStore(logs), logs)
    assert not bus.armed
    assert await bus.read(topics.kept(NAME)) == ()
    await bus.aclose()
