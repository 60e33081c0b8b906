"""A processor that dies in the middle of an answer, of a model that may be continued: another one goes on with it."""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from tests.fakes.continuing_server import WIRES, ContinuingServer, Dialect, Reader
from tests.fakes.mortal_bus import MortalBus
from tests.fakes.passing_bus import RemoteBus
from tests.fakes.typed_clients import LlmClient
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.client.asked_stream import AskedStream, Terms
from tg_base.client.attempt import Attempt
from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_base.protocol import HeartbeatTiming, Route, StreamKey
from tg_base.server import Processor
from tg_base.telemetry import trace
from tg_flow.providers.mistral.stream import StreamDecoder as MistralAnswer
from tg_flow.providers.registry import load_provider
from tg_schema import (
    COMMON_FEATURES,
    TEXT_COMPLETION,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    ToolCallDelta,
    decode,
    encode,
)
from tg_schema.completion import Token
from tg_schema.errors import ProtocolError, TooLarge, Unavailable
from tg_schema.topics import Topics
from tg_schema.usage_record import UsageRecord

TOPICS = Topics()
TIMING = HeartbeatTiming(interval=0.2)
ROUTE = Route("f", TEXT_COMPLETION, TOPICS.request("f", "t"), TOPICS.response("f", "t"), model="m")
CONTINUED = {"extra_features": ["continuation"], "tries": 1}
DIED = "died in the middle"


class Deaths:
    """After how many records of its processor each death comes; whoever has the stream dies.

    Attributes:
        left: those to come.
        died: how many came.
    """

    def __init__(self, *records: int) -> None:
        self.left = [*records]
        self.died = 0


class DyingBus(MortalBus):
    """The bus of a processor that dies once it has sent some records."""

    def __init__(self, bus: MemoryBus, deaths: Deaths) -> None:
        super().__init__(bus)
        self._deaths = deaths
        self._records = 0

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        await super().publish(topic, body, properties)
        self._records += body.count(b'["record"')
        if not self._dead and self._deaths.left and self._records >= self._deaths.left[0] > 0:
            del self._deaths.left[0]
            self._deaths.died += 1
            self.kill()


class PlannedLlm(LlmService):
    """Says its chunks, and after their text what is left of it, each once the reader has what comes before."""

    features = COMMON_FEATURES | {"n", "logprobs"}
    optional_features = frozenset({"continuation"})

    def __init__(self, chunks: tuple[LlmChunk, ...], reader: Reader, options: ProviderOptions) -> None:
        super().__init__("m", options)
        self.chunks = chunks
        self._reader = reader

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        begun = len("".join(request.continuation))
        for number, chunk in enumerate(self.chunks):
            said = sum([len(each.text) for each in self.chunks[:number]])
            if said >= begun:
                await self._reader.reach(said)
                yield chunk
        yield LlmChunk(in_token=50, out_token=10, finish_reason="stop")


Open = Callable[[], Any]
WORDS = tuple(f"word{number} " if number % 3 else f"word{number}, " for number in range(12))
ASKED = TextCompletionRequest(prompt="say it", streaming=True)


def text_of(records: list[TextCompletionResponse]) -> str:
    return "".join([record.response or "" for record in records])


class World:
    """A requestor, and processors of one model."""

    def __init__(self, requestor: Requestor, deaths: Deaths) -> None:
        self.requestor = requestor
        self.client = LlmClient(requestor, ROUTE)
        self.deaths = deaths
        self.records: list[UsageRecord] = []
        self.answer: list[TextCompletionResponse] = []

    async def ask(
        self, request: TextCompletionRequest = ASKED, reader: Reader | None = None
    ) -> list[TextCompletionResponse]:
        self.answer = []
        async with self.client.stream(request) as stream:
            async for record in stream:
                self.answer.append(record)
                if reader is not None:
                    reader.read = len(text_of(self.answer))
        return self.answer

    def has_more_than(self, processors: int) -> bool:
        return len(self.requestor.presence.processors(ROUTE.request)) > processors

    async def used(self, count: int) -> list[UsageRecord]:
        await until(lambda: len(self.records) >= count)
        return sorted(self.records, key=lambda record: record.attempt)


@asynccontextmanager
async def opened(open_model: Open, *deaths: int, spare: int = 1) -> AsyncIterator[World]:
    bus, coming = MemoryBus(), Deaths(*deaths)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.aclose)
        usage = await stack.enter_async_context(bus.subscribe(TOPICS.usage, "usage"))
        world = World(
            await stack.enter_async_context(Requestor(RemoteBus(bus), TOPICS, queues=(ROUTE.request,), timing=TIMING)),
            coming,
        )

        async def listen() -> None:
            async for delivery in usage:
                world.records += [decode(UsageRecord, line) for line in delivery.body.split(b"\n")]

        listening = asyncio.create_task(listen())
        stack.callback(listening.cancel)
        for number in range(len(deaths) + spare):
            model = await open_model()
            stack.push_async_callback(model.aclose)
            processor = Processor(
                DyingBus(bus, coming), TOPICS, model, (ROUTE,), models=("m",), timing=TIMING, grace=0.01
            )
            await stack.enter_async_context(processor)
            await until(partial(world.has_more_than, number))
        yield world


def planned(*chunks: LlmChunk | str, reader: Reader, continued: bool = True) -> Open:
    """A model that says this to its reader, and may be continued."""
    said = tuple([LlmChunk(chunk) if isinstance(chunk, str) else chunk for chunk in chunks])
    options = ProviderOptions(extra_features=frozenset({"continuation"} if continued else ()), tries=1)

    async def open_model() -> PlannedLlm:
        return PlannedLlm(said, reader, options)

    return open_model


def provided(name: str, **table: Any) -> Open:
    """A provider, by its name in the configuration."""

    async def open_model() -> LlmService[Any]:
        found = load_provider(name)
        return await found.kind.open("m", msgspec.convert({**found.defaults, **CONTINUED, **table}, found.kind.Options))

    return open_model


@pytest.mark.parametrize("records", [1, 5, 11])
async def test_another_processor_goes_on(records: int) -> None:
    reader = Reader()
    async with opened(planned(*WORDS, reader=reader), records) as world:
        *_, last = answer = await world.ask(reader=reader)
        first, second = await world.used(2)
    assert text_of(answer) == "".join(WORDS)
    seam = len("".join(WORDS[:records]))
    assert (last.continued_at, last.finish_reason) == ((seam,), "stop")
    # One record for each call: that of the lost one is estimated, and the last record has both.
    assert first.stream == second.stream
    assert 1 == first.attempt < second.attempt
    assert (first.outcome, first.error, first.estimated) == ("failed", "unavailable", True)
    assert first.usage.out_token is not None
    assert (second.outcome, second.usage.in_token, second.usage.out_token) == ("complete", 50, 10)
    sent = -(-seam // 4)
    assert (last.in_token, last.out_token) == (50 + 50 - sent, 10 + sent)


async def test_two_deaths_are_too_many() -> None:
    """The second silent processor ends a request, as one without text."""
    reader = Reader()
    async with opened(planned(*WORDS, reader=reader), 2, 3) as world:
        with pytest.raises(Unavailable, match=DIED):
            await world.ask(reader=reader)
        assert text_of(world.answer) == "".join(WORDS[:5])


async def test_a_complete_answer_is_not_asked_for_again() -> None:
    """Its slow reader still holds it when its processor dies."""
    reader = Reader()
    async with opened(planned(*WORDS, reader=reader), 0) as world, world.client.stream(ASKED) as stream:
        async for record in stream:
            reader.read += len(record.response or "")
        world.deaths.left = [1]
        await until(lambda: not world.has_more_than(1))
        assert world.deaths.died == 1
        assert stream.origin is not None
        assert stream.origin.attempt == 1


async def test_what_was_stopped_is_not_continued() -> None:
    """Its processor dies before it has stopped."""
    reader = Reader()
    async with opened(planned(*WORDS, reader=reader), 1) as world, world.client.stream(ASKED) as stream:
        assert (await anext(stream)).response == WORDS[0]
        await until(lambda: world.deaths.died == 1)
        world.requestor.stop(stream.id)
        reader.read = len("".join(WORDS))
        with pytest.raises(Unavailable, match=DIED):
            await anext(stream)


def begin_answer(*records: bytes) -> AskedStream:
    """A stream whose reader has these records."""
    now = asyncio.get_running_loop().time()
    attempt = Attempt(StreamKey("s", 1), ROUTE, trace.child("s"), now, now)
    stream = AskedStream(attempt, ASKED, Terms(60.0), needed=frozenset(), continued=True)
    for body in records:
        stream.put(body, last=False)
    return stream


async def test_to_go_on_costs_no_call_for_each_record() -> None:
    """All streams of a dead processor go on in one turn of the loop."""

    def count(records: int) -> int:
        stream, events = begin_answer(*[encode(TextCompletionResponse(response="word"))] * records), [""]
        sys.setprofile(lambda _, event, __: events.append(event))
        try:
            assert stream.go_on(Unavailable(DIED))
        finally:
            sys.setprofile(None)
        return len(events)

    # The first time, the decoder is made.
    _, few, many = [count(records) for records in (10, 10, 1000)]
    assert few == many


async def test_what_nobody_begins_ends_as_before() -> None:
    stream = begin_answer(encode(TextCompletionResponse(response="word")))
    assert (await anext(stream)).response == "word"
    assert stream.go_on(Unavailable(DIED))
    stream.fail(TooLarge("the request is too large with the text so far"))
    with pytest.raises(Unavailable, match=DIED):
        await anext(stream)


async def test_what_is_no_record_is_not_continued() -> None:
    assert not begin_answer(b'{"response":').go_on(Unavailable(DIED))


@pytest.mark.parametrize(
    ("chunks", "fields"),
    [
        ((LlmChunk(reasoning="let me think"), *WORDS), {}),
        (("I call ", LlmChunk(tool_calls=(ToolCallDelta(0, "c", "f", '{"a'),)), *WORDS), {}),
        ((LlmChunk("a ", tokens=(Token(1, "a "),)), *WORDS), {"sampling": Sampling(logprobs=0)}),
        (WORDS, {"sampling": Sampling(n=2)}),
        (WORDS, {"sampling": Sampling(presence_penalty=1.0)}),
        (('{"a": ', '"b', *WORDS), {"schema": {"type": "object"}}),
    ],
)
async def test_what_is_not_exact_ends_as_before(chunks: tuple[Any, ...], fields: dict[str, Any]) -> None:
    reader = Reader()
    async with opened(planned(*chunks, reader=reader), 3) as world:
        with pytest.raises(Unavailable, match=DIED):
            await world.ask(TextCompletionRequest(prompt="say it", streaming=True, **fields), reader)
    assert world.deaths.died == 1


async def test_without_the_option_nothing_is_continued() -> None:
    reader = Reader()
    async with opened(planned(*WORDS, reader=reader, continued=False), 3) as world:
        with pytest.raises(Unavailable, match=DIED):
            await world.ask(reader=reader)
    assert text_of(world.answer) == "".join(WORDS[:3])


async def test_without_another_processor_it_ends_as_before() -> None:
    reader = Reader()
    async with opened(planned(*WORDS, reader=reader), 3, spare=0) as world:
        with pytest.raises(Unavailable):
            await world.ask(reader=reader)
    assert text_of(world.answer) == "".join(WORDS[:3])


WIRE_OPTIONS: dict[Dialect, tuple[str, dict[str, Any]]] = {
    "vllm": ("vllm", {"key_variable": ""}),
    "deepseek": ("openai-compatible", {"key_variable": "", "continuation_field": "prefix"}),
    "mistral": ("mistral", {"key_variable": ""}),
}


@pytest.mark.parametrize("dialect", WIRES)
@settings(max_examples=3, deadline=None)
@given(records=st.integers(1, len(WORDS) - 1))
def test_each_wire_goes_on_by_its_own_fields(dialect: Dialect, records: int) -> None:
    words = tuple(f"{' ' if number else ''}word{number}" for number in range(len(WORDS)))

    async def check() -> None:
        reader, (name, options) = Reader(), WIRE_OPTIONS[dialect]
        async with (
            ContinuingServer(dialect, words, reader).running() as server,
            opened(provided(name, base_url=f"{server.url}/v1", **options), records) as world,
        ):
            sampling = Sampling(max_tokens=500)
            request = TextCompletionRequest(prompt="say it", streaming=True, sampling=sampling)
            answer = await world.ask(request, reader)
        assert text_of(answer) == "".join(words)
        whole, rest = server.bodies
        (seam,) = answer[-1].continued_at
        assert seam == len("".join(words[:records]))
        assert rest["messages"][:-1] == whole["messages"]
        assert rest["messages"][-1]["content"] == text_of(answer)[:seam]
        # No token is shorter than a byte.
        assert (whole["max_tokens"], rest["max_tokens"]) == (500, 500 - seam)
        assert {name: rest[name] for name in rest if name not in whole} == WIRES[dialect]

    asyncio.run(check())


def read_repeated(*pieces: str) -> str:
    """What an answer after "one two" says, of which Mistral's API sends these pieces."""
    decoder = MistralAnswer("one two")
    deltas: list[dict[str, Any]] = [{"delta": {"content": piece}} for piece in pieces]
    events = [*deltas, {"delta": {}, "finish_reason": "stop"}]
    chunks = [decoder.chunk(encode({"choices": [event]})) for event in events]
    return "".join([chunk.text for chunk in chunks if chunk])


@pytest.mark.parametrize("pieces", [("one two three",), ("one", " two", " three"), ("on", "", "e two th", "ree")])
def test_a_repeated_beginning_is_skipped(pieces: tuple[str, ...]) -> None:
    assert read_repeated(*pieces) == " three"


@pytest.mark.parametrize(
    "pieces", [(" three",), ("o", " three"), ("on",), ("one", "  two", " three"), ("One two three",), ()]
)
def test_a_beginning_that_is_not_repeated_is_an_error(pieces: tuple[str, ...]) -> None:
    with pytest.raises(ProtocolError, match="did not repeat"):
        read_repeated(*pieces)


@pytest.mark.parametrize(
    ("words", "sampling"),
    [
        # A template of chats would strip it.
        (("one ", "two ", "three ", "four "), Sampling()),
        # The limit may be used up.
        (("one", " two", " three", " four"), Sampling(max_tokens=3)),
    ],
)
async def test_what_a_wire_cannot_express_ends_as_before(words: tuple[str, ...], sampling: Sampling) -> None:
    reader = Reader()
    async with ContinuingServer("vllm", words, reader).running() as server:
        model = provided("vllm", base_url=f"{server.url}/v1", key_variable="")
        async with opened(model, 1) as world:
            with pytest.raises(Unavailable, match=DIED):
                await world.ask(TextCompletionRequest(prompt="say it", streaming=True, sampling=sampling), reader)
    assert len(server.bodies) == 1


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GREEDY = Sampling(temperature=0, max_tokens=40)
DEMO_REQUESTS = (
    TextCompletionRequest(prompt="What is Apache Pulsar?", streaming=True, sampling=GREEDY),
    TextCompletionRequest(
        prompt="Tell me a story about a fox.", streaming=True, sampling=Sampling(temperature=0, stop=(" school",))
    ),
    TextCompletionRequest(
        prompt="Count to 10.", streaming=True, sampling=Sampling(temperature=0, max_tokens=20, frequency_penalty=0.5)
    ),
    TextCompletionRequest(
        prompt="Anna is 30 years old and lives in Paris.", streaming=True, sampling=GREEDY, schema=PERSON
    ),
)


@settings(max_examples=8, deadline=None)
@given(request=st.sampled_from(DEMO_REQUESTS), records=st.integers(1, 12))
def test_a_model_in_the_process_goes_on_byte_for_byte(request: TextCompletionRequest, records: int) -> None:
    async def check() -> None:
        async with opened(provided("demo"), records) as world:
            answer = await world.ask(request)
            left, world.deaths.left = world.deaths.left, []
            uncut = await world.ask(request)
        assert text_of(answer) == text_of(uncut)
        assert (answer[-1].finish_reason, answer[-1].stopped_by) == (uncut[-1].finish_reason, uncut[-1].stopped_by)
        assert len(answer[-1].continued_at) == world.deaths.died == (not left)
        assert all(one < other for one, other in pairwise((0, *answer[-1].continued_at, len(text_of(uncut)) + 1)))

    asyncio.run(check())
