"""Requestor and processor on a real bus: order, ends, cancels, deadlines, deaths."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.fakes.counting_llm import CountingLlm
from tg_base.bus.api import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.liveness import Liveness
from tg_base.llm_client import LlmClient
from tg_base.processor import Processor
from tg_base.requestor import Requestor
from tg_base.route import Route
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse
from tg_schema.codec import decode, encode
from tg_schema.errors import BadRequest, Timeout, Unavailable
from tg_schema.topics import Topics

TOPICS = Topics()
ROUTE = Route(
    "default",
    TEXT_COMPLETION,
    TOPICS.request("default", "text-completion"),
    TOPICS.response("default", "text-completion"),
)
QUICK = Liveness(beat=0.05)


@dataclass
class Pipeline:
    bus: Bus
    llm: CountingLlm
    client: LlmClient
    processor: Processor


@asynccontextmanager
async def pipeline(bus: Bus, llm: CountingLlm) -> AsyncIterator[Pipeline]:
    async with (
        Processor(bus, TOPICS, llm, (ROUTE,), liveness=QUICK, grace=0.1) as processor,
        Requestor(bus, TOPICS, liveness=QUICK) as requestor,
    ):
        yield Pipeline(bus, llm, LlmClient(requestor, ROUTE), processor)


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    bus = MemoryBus()
    yield bus
    await bus.aclose()


async def test_a_whole_answer(bus: Bus) -> None:
    async with pipeline(bus, CountingLlm()) as it:
        assert await it.client.request("be brief", "3") == "0 1 2 "
        assert await it.client.request("be brief", "3", streaming=True) == "0 1 2 "
        assert it.llm.requests[0].system == "be brief"


async def test_every_chunk_leaves_at_once_and_usage_stands_on_the_last(bus: Bus) -> None:
    async with pipeline(bus, CountingLlm()) as it:
        it.llm.step = asyncio.Semaphore(0)
        request = TextCompletionRequest(prompt="3", streaming=True)
        async with it.client.stream(request) as responses:
            for number in range(2):
                it.llm.step.release()
                record = await anext(responses)
                assert (record.response, record.end_of_stream, record.out_token) == (f"{number} ", False, None)
                assert it.llm.generated == number + 1
            it.llm.step.release()
            rest = [record async for record in responses]
            last = rest[-1]
            assert "".join(record.response or "" for record in rest) == "2 "
            assert (last.in_token, last.out_token) == (7, 3)
            assert last.end_of_stream
            assert last.finish_reason == "stop"


async def test_a_thousand_streams_side_by_side_keep_their_words(bus: Bus) -> None:
    async with pipeline(bus, CountingLlm()) as it:
        expected = "".join(f"{number} " for number in range(50))
        answers = await asyncio.gather(*(it.client.request("", "50", streaming=True) for _ in range(1000)))
        assert set(answers) == {expected}


async def test_leaving_stops_the_model(bus: Bus) -> None:
    async with pipeline(bus, CountingLlm()) as it:
        it.llm.step = asyncio.Semaphore(5)
        async with it.client.stream(TextCompletionRequest(prompt="1000", streaming=True)) as responses:
            await anext(responses)
        await asyncio.wait_for(it.llm.stopped.wait(), 1)
        it.llm.step.release()
        assert it.llm.generated <= 5


async def test_leaving_before_the_first_token_stops_the_model(bus: Bus) -> None:
    async with pipeline(bus, CountingLlm()) as it:
        it.llm.step = asyncio.Semaphore(0)
        async with it.client.stream(TextCompletionRequest(prompt="1000", streaming=True)):
            await it.llm.started.wait()
        await asyncio.wait_for(it.llm.stopped.wait(), 1)
        assert it.llm.generated == 0


async def test_a_request_cancelled_in_the_queue_never_runs(bus: Bus) -> None:
    llm = CountingLlm()
    llm.capacity = 1
    llm.step = asyncio.Semaphore(0)
    async with pipeline(bus, llm) as it:
        async with it.client.stream(TextCompletionRequest(prompt="1")) as first:
            await llm.started.wait()
            async with it.client.stream(TextCompletionRequest(prompt="2")):
                pass
            for _ in range(4):
                llm.step.release()
            assert [record.response async for record in first] == ["0 "]
        assert await it.client.request("", "3") == "0 1 2 "
        assert [request.prompt for request in llm.requests] == ["1", "3"]


async def test_the_deadline_ends_both_ends(bus: Bus) -> None:
    async with pipeline(bus, CountingLlm()) as it:
        it.llm.step = asyncio.Semaphore(0)
        with pytest.raises(Timeout, match=r"no complete answer within 0\.1 s|deadline"):
            await it.client.request("", "1", timeout=0.1)
        await asyncio.wait_for(it.llm.stopped.wait(), 1)


async def test_an_error_is_the_last_record(bus: Bus) -> None:
    async with pipeline(bus, CountingLlm()) as it:
        with pytest.raises(BadRequest, match="prompt is missing"):
            await it.client.request("", "")


async def test_a_drained_processor_tells_its_requestors(bus: Bus) -> None:
    llm = CountingLlm()
    llm.step = asyncio.Semaphore(1)
    async with Requestor(bus, TOPICS, liveness=QUICK) as requestor:
        client = LlmClient(requestor, ROUTE)
        async with Processor(bus, TOPICS, llm, (ROUTE,), liveness=QUICK, grace=0.01):
            pieces = client.request_stream("", "5")
            assert await anext(pieces) == "0 "
        with pytest.raises(Unavailable, match="shuts down"):
            await anext(pieces)


async def test_nobody_serves(bus: Bus) -> None:
    async with Requestor(bus, TOPICS, liveness=QUICK) as requestor:
        with pytest.raises(Unavailable, match="no live processor serves text-completion of flow default"):
            await asyncio.wait_for(LlmClient(requestor, ROUTE).request("", "1"), 5)


async def test_a_request_waits_for_a_processor_that_comes_soon(bus: Bus) -> None:
    async with Requestor(bus, TOPICS, liveness=Liveness(beat=5)) as requestor:
        asked = asyncio.ensure_future(LlmClient(requestor, ROUTE).request("", "2"))
        await asyncio.sleep(0)
        async with Processor(bus, TOPICS, CountingLlm(), (ROUTE,), liveness=QUICK):
            assert await asked == "0 1 "


async def test_a_dead_requestor_stops_its_generations(bus: Bus) -> None:
    llm = CountingLlm()
    llm.step = asyncio.Semaphore(1)
    async with Processor(bus, TOPICS, llm, (ROUTE,), liveness=QUICK, grace=0.01):
        properties = {"id": "x", "reply": TOPICS.inbox("gone"), "attempt": "1"}
        await bus.publish(ROUTE.request, encode(TextCompletionRequest(prompt="9", streaming=True)), properties)
        await llm.started.wait()
        await asyncio.wait_for(llm.stopped.wait(), 2)
        assert llm.generated <= 1


async def test_a_plain_peer_gets_its_answer_on_the_fixed_topic(bus: Bus) -> None:
    async with (
        bus.subscribe(ROUTE.response, None) as responses,
        Processor(bus, TOPICS, CountingLlm(), (ROUTE,), liveness=QUICK),
    ):
        body = b'{"system":"s","prompt":"2","streaming":true,"response_format":null,"operation":"completion"}'
        await bus.publish(ROUTE.request, body, {"id": "peer-1"})
        texts = []
        while True:
            delivery = await anext(responses)
            record = decode(TextCompletionResponse, delivery.body)
            assert delivery.properties["id"] == "peer-1"
            assert b'"error":null' in delivery.body
            texts.append(record.response)
            if record.end_of_stream:
                break
        assert texts == ["0 ", "1 ", ""]


async def test_our_client_uses_a_plain_processor(bus: Bus) -> None:
    plain = Route("tg", TEXT_COMPLETION, ROUTE.request, ROUTE.response, plain=True)

    async def serve() -> None:
        async with bus.subscribe(plain.request, "theirs") as requests:
            delivery = await anext(requests)
            only = {"id": delivery.properties["id"]}
            await bus.publish(plain.response, b'{"response":"a ","end_of_stream":false,"error":null}', only)
            await bus.publish(plain.response, b'{"response":"b","end_of_stream":true,"error":null,"in_token":3}', only)

    async with (
        Requestor(bus, TOPICS, plain=(plain.response,), liveness=QUICK) as requestor,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(serve())
        assert await LlmClient(requestor, plain).request("", "x", streaming=True) == "a b"


@pytest.mark.parametrize("body", [b"", b"\xff\x00", b"[" * 100_000, b'{"prompt": 7}', b"null", b"[]"])
async def test_poison_goes_to_the_dead_letters_and_its_sender_hears(bus: Bus, body: bytes) -> None:
    async with (
        bus.subscribe(TOPICS.dead_letter(ROUTE.request), None) as dead,
        bus.subscribe(ROUTE.response, None) as responses,
        pipeline(bus, CountingLlm()) as it,
    ):
        await bus.publish(ROUTE.request, body, {"id": "bad"})
        assert (await anext(dead)).body == body
        answer = decode(TextCompletionResponse, (await anext(responses)).body)
        assert answer.end_of_stream
        assert answer.error is not None
        assert answer.error.type == "bad-request"
        assert await it.client.request("", "1") == "0 "
