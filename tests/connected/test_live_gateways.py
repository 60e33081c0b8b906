"""Gateways over a broker: each shows the streams and processors of all, and stops any stream, whoever dies."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self

import pytest
from aiohttp import ClientSession, TCPConnector

from tests.connected.pipeline import Pipeline
from tests.connected.test_gateway_workers import start
from tests.fakes.live_openai import Generation, LiveOpenAi
from tests.suspended import suspended
from tests.until import AT_ONCE_SECONDS
from tg_client import TgClient
from tg_gateway.relay.other_gateways import PART_SECONDS
from tg_schema import TgError, decode
from tg_schema.errors import Cancelled, NotFound
from tg_schema.live import LiveDocument

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

SLOW_SECONDS = 5.0
"""How late a view may be on a busy machine; without a bound of ours it would wait for the dead gateway for ever."""


async def see(client: TgClient, right: Callable[[LiveDocument], object]) -> LiveDocument:
    """The first document that is as it should be; others may share the broker."""
    async with client.follow_live() as documents:
        async for document in documents:
            if right(document):
                return document
    raise AssertionError("the gateway has ended the events")


def runs(flow: str, document: LiveDocument) -> int:
    """How many requests of a flow its processor says that it runs."""
    queue = document.queues.get(f"{flow}/text-completion")
    return queue.running if queue else 0


def of(flow: str, document: LiveDocument) -> set[str]:
    """The ids of the streams of a flow."""
    return {name for name, row in document.streams.items() if row and row.flow == flow}


async def read(client: TgClient, flow: str, prompt: str = "x") -> None:
    async with client.flow(flow).text_completion_stream(prompt=prompt) as chunks:
        async for _ in chunks:
            pass


@dataclass
class Asked:
    """A stream that runs: its id, what its client does, and the provider's call."""

    stream: str
    reading: "asyncio.Task[None]"
    generation: Generation

    async def stop(self, through: TgClient, live_model: LiveOpenAi) -> None:
        """Its model says nothing more, and the others go on."""
        await through.stop_stream(self.stream)
        await live_model.until(self.generation.left.is_set, within=AT_ONCE_SECONDS)
        sent = self.generation.sent
        going = [(each, each.sent) for each in live_model.running]
        await live_model.until(lambda: all(each.sent > was + 1 for each, was in going), within=30)
        assert self.generation.sent == sent
        with pytest.raises(Cancelled, match="an operator has stopped"):
            await self.reading


def going(asked: list[Asked]) -> Iterator[str]:
    """The ids of those that have not been stopped."""
    return (each.stream for each in asked if not each.reading.done())


@dataclass
class Asking:
    """Asks through gateways, one after the other, and leaves what still runs."""

    flow: str
    live_model: LiveOpenAi
    asked: list[Asked] = field(default_factory=list)

    async def ask(self, gateway: TgClient, viewer: TgClient) -> Asked:
        """A stream of the one gateway, as soon as the other shows it."""
        prompt, known = f"p{len(self.asked)}", {each.stream for each in self.asked}

        reading = asyncio.create_task(read(gateway, self.flow, prompt))
        await self.live_model.until(lambda: any(each.sent for each in self.live_model.of(prompt)), within=60)
        document = await see(viewer, lambda document: of(self.flow, document) - known)
        (stream,) = of(self.flow, document) - known
        self.asked.append(Asked(stream, reading, self.live_model.of(prompt)[0]))
        return self.asked[-1]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self.asked:
            each.reading.cancel()
        await asyncio.gather(*(each.reading for each in self.asked), return_exceptions=True)


async def test_any_of_three_gateways_stops_a_stream_at_the_provider(line: Pipeline, live_model: LiveOpenAi) -> None:
    await line.start("text-completion")
    parts = [await line.start("gateway") for _ in range(3)]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(TgClient(part.url, retries=0)) for part in parts]
        asking = await stack.enter_async_context(Asking(line.flow, live_model))
        for number in random.sample(range(3), 3):
            await asking.ask(clients[number], clients[number - 1])
        streams = {each.stream for each in asking.asked}
        seen = [
            await see(client, lambda document: runs(line.flow, document) == 3 and of(line.flow, document) == streams)
            for client in clients
        ]
        names = {document.gateway for document in seen}
        assert len(names) == 3
        for document in seen:
            rows = [row for row in document.gateways.values() if row and row.name in names]
            assert [row.streams for row in rows] == [1, 1, 1]
        with pytest.raises(NotFound, match="it has ended"):
            await clients[0].stop_stream("0" * 32)
        first, second, third = asking.asked
        for each in (first, second):
            through = random.choice(clients)
            await each.stop(through, live_model)
            await see(through, lambda document: of(line.flow, document) == {*going(asking.asked)})
        assert not third.reading.done()


async def test_a_killed_gateway_leaves_the_list_of_whoever_looks(line: Pipeline, live_model: LiveOpenAi) -> None:
    await line.start("text-completion")
    living, dying = await line.start("gateway"), await line.start("gateway")
    async with (
        TgClient(living.url, retries=0) as client,
        TgClient(dying.url, retries=0) as other,
        Asking(line.flow, live_model) as asking,
    ):
        mine, lost = await asking.ask(client, client), await asking.ask(other, client)
        async with client.follow_live() as documents:
            both = await anext(documents)
            assert of(line.flow, both) == {mine.stream, lost.stream}
            dying.process.kill()
            before = died = time.monotonic()
            async for document in documents:
                # It holds nothing up: the others' figures come each second.
                assert time.monotonic() - before < SLOW_SECONDS
                before = time.monotonic()
                if of(line.flow, document) == {mine.stream}:
                    break
            assert before - died < PART_SECONDS + SLOW_SECONDS
            assert len(document.gateways) == len(both.gateways) - 1
        with pytest.raises(TgError):
            await lost.reading
        with pytest.raises(NotFound):
            await client.stop_stream(lost.stream)
        await live_model.until(lost.generation.left.is_set, within=10)
        await mine.stop(client, live_model)


async def test_a_worker_shows_and_stops_what_another_one_has_asked(line: Pipeline, live_model: LiveOpenAi) -> None:
    gateway, pids = await start(line)
    random.shuffle(pids)
    asker, viewer = pids
    one_connection = TCPConnector(limit=1, keepalive_timeout=60)
    async with ClientSession(gateway.url, connector=one_connection) as http, TgClient(gateway.url, retries=0) as client:

        async def show() -> LiveDocument:
            async with http.get("api/v1/live") as answer:
                return decode(LiveDocument, await answer.read())

        # Whoever accepts a connection keeps it.
        with suspended(asker):
            await show()
        with suspended(viewer):
            reading = asyncio.create_task(read(client, line.flow))
            await live_model.until(lambda: any(each.sent for each in live_model.generations), within=60)
        document = await show()
        async with asyncio.timeout(60):
            while not of(line.flow, document):
                document = await show()
        rows = {row.name.rpartition(":")[2]: row.streams for row in document.gateways.values() if row}
        assert document.gateway.endswith(f":{viewer}")
        assert (rows[str(asker)], rows[str(viewer)]) == (1, 0)
        async with http.post(f"api/v1/live/streams/{of(line.flow, document).pop()}/stop") as answer:
            assert answer.status == 200, await answer.text()
        await live_model.until(live_model.generations[0].left.is_set, within=AT_ONCE_SECONDS)
        with pytest.raises(Cancelled, match="an operator has stopped"):
            await reading
