"""A link's sending end: a late word changes nothing; the word of somebody who has forgotten begins it anew."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.fakes.network_bus import NetworkBus
from tg_base.bus import Delivery
from tg_base.bus.memory import MemoryBus
from tg_base.client.control_sender import ControlSender
from tg_base.client.inbox import Inbox
from tg_base.protocol import Ack, Frame, LinkSender, LinkStream, StreamKey
from tg_base.runtime import running
from tg_base.telemetry import new_id
from tg_schema import Error, TextCompletionResponse, decode
from tg_schema.topics import Topics

MAX_CHUNK_BYTES = 120
"""Body of the message with a one-token chunk, of a stream and a model with usual names."""
INBOX = "non-persistent://public/default/inbox"
KEY = StreamKey("s", 1)


@asynccontextmanager
async def linked(words: int) -> AsyncIterator[tuple[LinkSender, AsyncIterator[Delivery], list[Delivery]]]:
    """A link that has sent so many words, each as a message, and what follows."""
    bus = MemoryBus()
    link = LinkSender(bus, INBOX, "p", lambda: 0.0)
    async with bus.subscribe(INBOX, None) as deliveries, running(link.run()):
        sent = []
        for number in range(words):
            await LinkStream(link, KEY, 5.0).send(TextCompletionResponse(response=f"{number} "))
            sent.append(await anext(deliveries))
        yield link, deliveries, sent
    await bus.aclose()


async def test_a_chunk_of_one_token_costs_few_bytes() -> None:
    bus = MemoryBus()
    link = LinkSender(bus, INBOX, "p", lambda: 0.0)
    async with bus.subscribe(INBOX, None) as deliveries, running(link.run()):
        token = TextCompletionResponse(response=" token", model="gpt-5.4-mini")
        await LinkStream(link, StreamKey(new_id(), 1), 5.0).send(token)
        delivery = await anext(deliveries)
    await bus.aclose()
    assert len(delivery.body) <= MAX_CHUNK_BYTES, delivery.body


def text(delivery: Delivery) -> str:
    """What a message says."""
    frames = decode(list[Frame], delivery.body)
    return "".join(decode(TextCompletionResponse, bytes(frame.record)).response or "" for frame in frames)


async def test_late_words_change_nothing() -> None:
    async with linked(3) as (link, deliveries, _):
        name = link.name
        link.acknowledge(Ack(1, 2))
        link.acknowledge(Ack(1, 0))
        link.resend(Ack(1, 0))
        await LinkStream(link, KEY, 5.0).send(TextCompletionResponse(response="3 "))
        delivery = await anext(deliveries)
        assert (text(delivery), delivery.properties["link"], delivery.properties["seq"]) == ("3 ", name, "3")


async def test_a_reader_that_has_forgotten_gets_what_it_has_not_acknowledged() -> None:
    async with linked(3) as (link, deliveries, sent):
        link.acknowledge(Ack(1, 1))
        link.resend(Ack(2, -1))
        delivery = await anext(deliveries)
        assert text(delivery) == "2 "
        assert delivery.properties["seq"] == "0"
        assert delivery.properties["link"] != sent[0].properties["link"]
        link.acknowledge(Ack(3, 0))
        await asyncio.sleep(0)
        assert link.idle


async def test_messages_of_a_replaced_link_are_passed_over() -> None:
    taken: list[Frame] = []
    controls = ControlSender(MemoryBus(), Topics(), lambda: 0.0)
    inbox = Inbox(INBOX, controls, lambda: 0.0, lambda _, __, frame: taken.append(frame))
    async with linked(2) as (link, deliveries, sent):
        inbox.take(sent[0])
        assert len(taken) == 1
        link.acknowledge(Ack(1, -1))
        link.resend(Ack(2, -1))
        taken.clear()
        for delivery in (await anext(deliveries), await anext(deliveries)):
            inbox.take(delivery)
        assert len(taken) == 2
        for delivery in sent:
            inbox.take(delivery)
        assert len(taken) == 2


async def test_what_is_flushed_the_bus_has_taken() -> None:
    bus = NetworkBus(MemoryBus())
    link = LinkSender(bus, INBOX, "p", lambda: 0.0)
    async with running(link.run()):
        bus.sent.clear()
        await LinkStream(link, KEY, 5.0).send(TextCompletionResponse(response="0 "))
        flushing = asyncio.create_task(link.flush())
        await link.until_taken()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not flushing.done()
        bus.sent.set()
        await flushing


async def test_name_and_number_stay_together_when_a_renewal_comes_before_the_send() -> None:
    bus = NetworkBus(MemoryBus())
    link = LinkSender(bus, INBOX, "p", lambda: 0.0)
    inbox = Inbox(INBOX, ControlSender(bus, Topics(), lambda: 0.0), lambda: 0.0, lambda *_: None)
    async with bus.subscribe(INBOX, None) as deliveries, running(link.run()):
        await LinkStream(link, KEY, 5.0).send(TextCompletionResponse(response="0 "))
        inbox.take(first := await anext(deliveries))
        link.acknowledge(Ack(1, 0))
        bus.sent.clear()
        await LinkStream(link, KEY, 5.0).send(TextCompletionResponse(response="1 "))
        await link.until_taken()
        link.resend(Ack(2, -1))
        bus.sent.set()
        sent = [await anext(deliveries)]
        while text(sent[-1]) != "1 " or sent[-1].properties["link"] != link.name:
            sent.append(await anext(deliveries))
        assert first.properties["link"] != link.name
        under_the_new_name = [delivery for delivery in sent if delivery.properties["link"] == link.name]
        assert [delivery.properties["seq"] for delivery in under_the_new_name] == ["0"]


async def test_what_the_broker_does_not_take_ends_its_own_stream_alone() -> None:
    bus = NetworkBus(MemoryBus())
    bus.limit = 1000
    link = LinkSender(bus, INBOX, "p", lambda: 0.0)
    async with bus.subscribe(INBOX, None) as deliveries, running(link.run()):
        await LinkStream(link, StreamKey("neighbour", 1), 5.0).send(TextCompletionResponse(response="fits "))
        stream = LinkStream(link, KEY, 5.0)
        await stream.send(TextCompletionResponse(response="x" * 2000))
        await stream.send(TextCompletionResponse(response="y"))
        frames: list[Frame] = []
        while len(frames) < 2:
            frames += decode(list[Frame], (await anext(deliveries)).body)
        answers = {frame.stream: decode(TextCompletionResponse, bytes(frame.record)) for frame in frames}
        assert answers["neighbour"].response == "fits "
        assert answers[KEY.stream].error == Error("too-large", "the answer holds a record that is too large to travel")
        link.acknowledge(Ack(1, link.state.sent))
        assert link._unacked_bytes == 0


async def test_what_is_not_acknowledged_is_bounded_in_messages_and_in_bytes() -> None:
    async with linked(256) as (link, deliveries, _):
        await LinkStream(link, KEY, 5.0).send(TextCompletionResponse(response="one more"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert link.state.sent == 255
        link.acknowledge(Ack(1, 0))
        assert text(await anext(deliveries)) == "one more"
    async with linked(0) as (link, deliveries, _):
        stream = LinkStream(link, KEY, 5.0)
        record = TextCompletionResponse(response="x" * 1024 * 1024)
        for _ in range(16):
            await stream.send(record)
            await anext(deliveries)
        await stream.send(record)
        for _ in range(20):
            await asyncio.sleep(0)
        assert link.state.sent == 15
