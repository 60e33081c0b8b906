"""Gateways on one bus: any of them shows and stops the streams of all, and asks nobody while nobody looks."""

import asyncio
import random
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import ClientSession
from prometheus_client import REGISTRY

from tests.fakes.counting_llm import CountingLlm, SteppedLlm
from tests.flow.open_gateway import MOUNTS, ON_ANY_PORT
from tests.flow.test_live import KEYED, SteadyLlm, see
from tests.until import AT_ONCE_SECONDS, until
from tg_base.bus import Bus, open_bus
from tg_base.client import Requestor
from tg_base.config import Config, TextCompletionConfig
from tg_base.protocol import ECHO_PROPERTY, PEER_PROPERTY, Echo
from tg_base.server import Processor
from tg_client import TgClient
from tg_gateway.app import Gateway
from tg_gateway.relay.live_part import Part
from tg_gateway.relay.live_rates import Rates
from tg_gateway.relay.live_rows import MAX_NAME_CHARACTERS, MAX_ROWS
from tg_gateway.relay.other_gateways import MAX_PART_BYTES, MAX_PARTS
from tg_schema import decode, encode
from tg_schema.errors import NotFound, Unauthorized
from tg_schema.live import LiveDocument, LiveGateway, LiveStream
from tg_schema.topics import Topics


@dataclass
class World:
    """Gateways, each with a connection of its own, before one model."""

    flow: str
    bus: Bus
    topics: Topics
    gateways: list[Gateway]
    stack: AsyncExitStack

    async def client(self, number: int, key: str = "root") -> TgClient:
        """Of the gateway of this number."""
        return await self.stack.enter_async_context(TgClient(self.gateways[number].url, token=key, retries=0))

    async def ask(self, number: int, key: str, prompt: str = "9") -> "asyncio.Task[bytes]":
        """A request there, which is left in the end; the task has what its client reads."""

        async def read() -> bytes:
            headers = {"Authorization": f"Bearer {key}"}
            async with ClientSession(self.gateways[number].url, headers=headers) as http:
                asking = {"prompt": prompt, "streaming": True}
                async with http.post(f"api/v1/flow/{self.flow}/service/text-completion", json=asking) as response:
                    return await response.read()

        task = asyncio.create_task(read())

        async def leave() -> None:
            task.cancel()
            await asyncio.wait([task])

        self.stack.push_async_callback(leave)
        return task

    async def stranger(self) -> Requestor:
        """Another requestor on the bus, of which the test is the gateway."""
        return await self.stack.enter_async_context(Requestor(self.bus, self.topics))

    def queue(self, document: LiveDocument) -> tuple[int, int, int]:
        """What runs, waits and has failed."""
        row = document.queues[f"{self.flow}/text-completion"]
        assert row is not None
        return row.running, row.waiting, row.errors


@asynccontextmanager
async def world_of(
    bus_url: str, llm: CountingLlm, gateways: int = 3, keyless: Collection[int] = ()
) -> AsyncIterator[World]:
    flow, topics = f"f-{uuid4().hex[:8]}", Topics()
    config = Config(flows={flow: {"text-completion": TextCompletionConfig(model=llm.model)}})
    routes = config.routes("text-completion")
    async with AsyncExitStack() as stack:
        shared = await stack.enter_async_context(open_bus(bus_url))
        processor = Processor(shared, topics, llm, routes, models=(llm.model,), grace=0.05)
        await stack.enter_async_context(processor)
        opened = []
        for number in range(gateways):
            access = ON_ANY_PORT if number in keyless else KEYED
            bus = shared if bus_url == "memory://" else await stack.enter_async_context(open_bus(bus_url))
            requestor = await stack.enter_async_context(Requestor(bus, topics, queues=(routes[0].request,)))
            await requestor.until_served(routes[0])
            opened.append(await stack.enter_async_context(Gateway(access, requestor, routes, mounts=MOUNTS)))
        async with AsyncExitStack() as asking:
            yield World(flow, shared, topics, opened, asking)


async def see_total(client: TgClient, streams: int) -> LiveDocument:
    """The first document of so many streams, all of which have been asked."""
    rows = min(streams, MAX_ROWS)
    return await see(client, lambda it: (it.totals["streams"], len(it.streams)) == (streams, rows))


def of(key: str, document: LiveDocument) -> list[str]:
    """The ids of the streams of a key."""
    return [name for name, row in document.streams.items() if row and row.key == key]


async def test_any_gateway_shows_the_streams_of_all(bus_url: str) -> None:
    llm, counts = SteppedLlm(), [random.randint(1, 4) for _ in range(3)]
    async with world_of(bus_url, llm) as it:
        for number, count in enumerate(counts):
            for _ in range(count):
                await it.ask(number, random.choice(("alice", "bob")))
        seen = []
        for number in range(3):
            client = await it.client(number)
            document = await see(client, lambda document: it.queue(document)[0] == len(document.streams) == sum(counts))
            # Whoever looks once waits for the others.
            whole = await client.live()
            assert whole.streams.keys() == document.streams.keys()
            begun = [row.since for row in whole.streams.values() if row]
            assert begun == sorted(begun)
            assert document.totals["gateways"] == len(document.gateways) == 3
            assert document.totals["streams"] == sum(counts)
            seen.append(document)
        assert len({tuple(sorted(each.streams)) for each in seen}) == 1
        assert len({tuple(sorted(each.gateways)) for each in seen}) == 1
        for document in seen:
            assert sorted(row.streams for row in document.gateways.values() if row) == sorted(counts)
            ages = [document.at - row.since for row in document.streams.values() if row]
            assert all(-1 < age < 60 for age in ages)


async def test_figures_are_those_of_all_gateways_and_of_each(bus_url: str) -> None:
    llm = CountingLlm()
    llm.capacity = 1
    async with world_of(bus_url, llm) as it:
        whole = await asyncio.gather(*[await it.ask(number, "alice", "20") for number in (0, 1, 1)])
        assert all(b'"end_of_stream":true' in each for each in whole)
        await asyncio.gather(*[await it.ask(number, "alice", "no number") for number in (0, 1, 1)])
        llm.step = asyncio.Semaphore(0)
        for number in (0, 1, 2):
            await it.ask(number, "bob")
        document = await see(await it.client(2), lambda document: it.queue(document) == (1, 2, 3))
        rows = [row for row in document.gateways.values() if row]
        assert sorted(row.errors for row in rows) == [0, 1, 2]
        assert [row.streams for row in rows] == [1, 1, 1]
        assert sum(row.waiting for row in rows) == 2
        queue = document.queues[f"{it.flow}/text-completion"]
        assert queue is not None
        assert queue.first_p50 is not None
        assert 0 < queue.tokens <= round(sum(row.tokens for row in rows), 1) + 0.1


async def test_a_key_sees_and_stops_its_own_streams_through_any_gateway(bus_url: str) -> None:
    llm = SteadyLlm()
    async with world_of(bus_url, llm) as it:
        reading = await it.ask(0, "alice")
        alice, bob, root, nobody = [await it.client(1, key) for key in ("alice", "bob", "root", "nobody")]
        mine = await see(alice, lambda document: document.streams)
        assert (len(mine.streams), mine.totals) == (1, {"streams": 1})
        (name,) = mine.streams
        all_seen, others = await see(root, lambda document: document.streams), await bob.live()
        assert (of("alice", all_seen), bool(all_seen.queues), others.streams) == ([name], True, {})
        for each in (mine, others):
            assert (each.gateway, each.gateways, each.queues, each.processors, each.pools) == ("", {}, {}, {}, {})
        for refused in (nobody.live(), nobody.stop_stream(name)):
            with pytest.raises(Unauthorized):
                await refused
        for client, stream in ((bob, name), (root, uuid4().hex), (root, "x" * 5000)):
            with pytest.raises(NotFound, match="another key's"):
                await client.stop_stream(stream)
        assert not reading.done()
        await alice.stop_stream(name)
        await asyncio.wait_for(llm.stopped.wait(), AT_ONCE_SECONDS)
        generated = llm.generated
        assert b'"type":"cancelled"' in await reading
        with pytest.raises(NotFound, match="it has ended"):
            await alice.stop_stream(name)
        again = await it.ask(2, "bob")
        (other,) = (await see(root, lambda document: of("bob", document))).streams
        assert llm.generated > generated
        await root.stop_stream(other)
        assert b'"type":"cancelled"' in await again
        await see(root, lambda document: not document.streams)


async def test_whoever_needs_no_key_sees_and_stops_nothing_of_a_gateway_with_keys(bus_url: str) -> None:
    llm = SteadyLlm()
    async with world_of(bus_url, llm, 4, keyless=(0, 1)) as it:
        reading = [await it.ask(number, random.choice(("alice", "bob"))) for number in (1, 2, 3)]
        anybody, root = await it.client(0, "root"), await it.client(2, "root")
        everything = await see(root, lambda document: len(document.streams) == 3)
        (open_one,) = of("anybody", everything)
        async with anybody.follow_live() as documents:
            async for document in documents:
                assert [*document.streams] in ([], [open_one])
                if document.streams:
                    break
            document = await anext(documents)
        assert ([*document.streams], len(document.gateways), document.totals["streams"]) == ([open_one], 2, 1)
        for stream in everything.streams.keys() - {open_one}:
            with pytest.raises(NotFound, match="another key's"):
                await anybody.stop_stream(stream)
        stopped, *others = reading
        await random.choice((anybody, root)).stop_stream(open_one)
        assert b'"type":"cancelled"' in await stopped
        assert not any(each.done() for each in others)


async def test_of_many_the_oldest_of_all_gateways_are_listed(bus_url: str) -> None:
    llm = SteppedLlm()
    async with world_of(bus_url, llm, gateways=2) as it:
        client = await it.client(0)
        for number, key, total in ((1, "alice", 120), (0, "bob", 230)):
            for _ in range(total if key == "alice" else 110):
                await it.ask(number, key)
            document = await see_total(client, total)
        assert len(document.streams) == MAX_ROWS
        assert len(of("alice", document)) == 120


def answer_of(part: bytes, sees: str | None = None) -> object:
    """What a gateway of the world outside says."""
    return {"type": "live", "sees": sees, "answer": True, "part": b64encode(part).decode()}


async def test_a_gateway_that_answers_no_more_leaves_the_list(bus_url: str) -> None:
    async with world_of(bus_url, CountingLlm(), gateways=1) as it:
        other, looks, answers = await it.stranger(), 0, True
        row = LiveStream("f", "text-completion", "m", "k", "sse", 5.0, 1, begun=True)
        part = Part("other", 10.0, LiveGateway("other:1", "9.9", True, 1, 2, 3.0, 4), {"s-1": row})

        def take(peer: str, body: bytes) -> None:
            nonlocal looks
            looks += 1
            if answers:
                other.tell_peers(answer_of(zlib.compress(encode(part))), peer)

        other.hear_peers(take)
        async with (await it.client(0)).follow_live() as documents:
            first = await anext(documents)
            assert first.gateways["other"] == part.gateway
            age = first.at - first.streams["s-1"].since  # type: ignore[union-attr]
            assert 4.5 < age < 7
            assert (await anext(documents)).streams == first.streams
            answers = False
            async for document in documents:
                if "other" not in document.gateways:
                    break
            assert (document.streams, document.totals["gateways"]) == ({}, 1)
        assert looks > 1


def count_poison(topic: str) -> float:
    """On all topics with this in their names."""
    return sum(
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "tg_poison_messages_total" and topic in sample.labels.get("topic", "")
    )


async def test_bad_messages_are_poison_and_disturb_no_view(bus_url: str) -> None:
    bomb = zlib.compress(b'{"id":"' + b"x" * (100 * MAX_PART_BYTES))
    async with world_of(bus_url, CountingLlm(), gateways=2) as it:
        forging, looks = await it.stranger(), 0
        before = count_poison("inbox"), count_poison("presence")

        def take(peer: str, body: bytes) -> None:
            nonlocal looks
            looks += 1
            for part in (bomb, b"no part", zlib.compress(b"{}"), zlib.compress(b'{"id":1}')):
                forging.tell_peers(answer_of(part), peer)
            forging.tell_peers({"type": "later", "sees": None}, peer)
            forging.tell_peers({"type": "live", "sees": None, "stream": "s-1", "answer": True}, peer)
            forging.tell_peers({"type": "live", "sees": "never looked", "answer": True}, peer)

        forging.hear_peers(take)
        async with (await it.client(0)).follow_live() as documents:
            # The broker may drop an answer beside a bomb, or bring it late; that gateway is seen again all the same.
            seen = 0
            async for document in documents:
                seen += document.totals["gateways"] == 2
                if seen == 3:
                    break
            await until(lambda: looks)
        # A broker drops some of them beside a bomb.
        all_come = bus_url == "memory://"
        await until(lambda: (5 * looks if all_come else 1) <= count_poison("inbox") - before[0] <= 5 * looks)
        assert count_poison("presence") == before[1]


async def test_a_gateway_of_another_version_is_neither_disturbed_nor_told_more(bus_url: str) -> None:
    """An older requestor takes a question for an echo; what gateways say may lack fields, or have more of them."""
    async with world_of(bus_url, CountingLlm(), gateways=1) as it, it.bus.subscribe(it.topics.presence, None) as heard:
        older, told = await it.stranger(), asyncio.Queue[tuple[str | None, bool]]()
        before = count_poison("inbox"), count_poison("presence")
        client = await it.client(0)
        part = zlib.compress(encode(Part("other", 1.0, LiveGateway("other:1", "9.9", False, 0), {})))

        def take(peer: str, body: bytes) -> None:
            message = decode(dict[str, Any], body)
            told.put_nowait((message["sees"], message.get("answer", False)))
            older.tell_peers(answer_of(part), peer)

        older.hear_peers(take)
        echo = Echo(it.bus, it.topics.presence, asyncio.get_running_loop().time, 1.0)
        async with client.follow_live() as documents:
            document = await anext(documents)
            async for delivery in heard:
                if PEER_PROPERTY in delivery.properties:
                    assert echo.take(delivery)
                    break
        assert "other" in document.gateways
        while not told.empty():
            assert told.get_nowait() == (None, False)
        # It does not say whether it checks keys, so it is told of its own keys' streams alone.
        older.tell_peers({"type": "live", "sees": None})
        older.tell_peers({"type": "live", "sees": "alice", "later": 1})
        while not (answer := await told.get())[1]:
            pass
        assert answer == ("alice", True)
        assert (count_poison("inbox"), count_poison("presence")) == before


async def test_while_nobody_looks_no_gateway_tells_anything(bus_url: str) -> None:
    async with world_of(bus_url, CountingLlm()) as it, it.bus.subscribe(it.topics.presence, None) as heard:
        told = list[bool]()

        async def listen() -> None:
            async for delivery in heard:
                told.append(PEER_PROPERTY in delivery.properties)
                assert told[-1] == (ECHO_PROPERTY in delivery.properties)

        async def until_quiet() -> None:
            del told[:]
            await until(lambda: len(told) >= 3)

        listening = asyncio.create_task(listen())
        await until_quiet()
        assert not any(told)
        await see(await it.client(0), lambda document: len(document.gateways) == 3)
        assert any(told)
        await until_quiet()
        await until_quiet()
        assert not any(told)
        others = [gateway._live._others for gateway in it.gateways]
        assert not any(each._stopping for each in others)
        listening.cancel()


async def test_so_many_keys_may_look_at_a_time(bus_url: str) -> None:
    """More of them see the streams of the gateway that they ask alone."""
    async with world_of(bus_url, CountingLlm(), gateways=1) as it:
        asking, seen = await it.stranger(), set[bytes]()
        asking.hear_peers(lambda _, body: seen.add(body))
        for number in range(2 * MAX_PARTS):
            asking.tell_peers({"type": "live", "sees": f"key {number}"})
        await until(lambda: len(seen) >= MAX_PARTS)
        assert len(it.gateways[0]._live._others._shown) <= MAX_PARTS


async def test_an_operator_is_answered_however_many_keys_look() -> None:
    async with world_of("memory://", CountingLlm(), gateways=1) as it:
        asking, answered = await it.stranger(), asyncio.Event()
        asking.hear_peers(lambda _, body: answered.set() if b'"sees":null' in body else None)
        for number in range(2 * MAX_PARTS):
            asking.tell_peers({"type": "live", "sees": f"key {number}"})
        asking.tell_peers({"type": "live", "sees": None, "keyed": True})
        await until(answered.is_set, within=10)


async def test_keys_that_look_push_no_gateway_out_of_an_operators_view(bus_url: str) -> None:
    async with world_of(bus_url, CountingLlm(), gateways=2) as it:
        other, crowds = await it.stranger(), set[asyncio.Task[None]]()
        part = zlib.compress(encode(Part("other", 1.0, LiveGateway("other:1", "9.9", False, 0), {})))

        async def crowd(inbox: str) -> None:
            for number in range(2 * MAX_PARTS):
                peer = {PEER_PROPERTY: f"gateway {number}", ECHO_PROPERTY: PEER_PROPERTY}
                await it.bus.publish(inbox, encode(answer_of(part, "alice")), peer)

        def take(peer: str, body: bytes) -> None:
            if b'"sees":"alice"' in body:
                crowds.add(asyncio.create_task(crowd(peer)))

        other.hear_peers(take)
        async with (await it.client(0, "alice")).follow_live() as documents:
            await anext(documents)
            await until(lambda: len(it.gateways[0]._live._others._parts) >= MAX_PARTS)
            document = await see(await it.client(0, "root"), lambda document: document.totals["gateways"] > 1)
            assert len(document.gateways) == 2
        await asyncio.gather(*crowds)


def test_a_part_with_the_longest_names_is_far_below_the_limit_of_a_message() -> None:
    def name() -> str:
        return "".join(chr(random.randrange(0x1F300, 0x1F5FF)) for _ in range(MAX_NAME_CHARACTERS))

    streams = [LiveStream(name(), name(), name(), name(), name(), 1e9, 10**12, begun=True) for _ in range(MAX_ROWS)]
    rows = {name(): stream for stream in streams}
    queues = {name(): Rates(1e12, 10**9, (10**9,) * 16, 10**9) for _ in range(MAX_ROWS)}
    part = encode(Part("x" * 12, 1e9, LiveGateway(name(), name(), True, 10**9, 10**9, 1e9, 10**9), rows, queues))
    assert len(part) < MAX_PART_BYTES / 2
    assert len(zlib.compress(part, 1)) < len(part)
