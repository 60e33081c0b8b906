"""Responses that are kept, as OpenAI's own SDK uses them: retrieve, delete, input items, previous_response_id."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import openai
import pytest
from msgspec.structs import replace
from openai import AsyncOpenAI
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.passing_bus import PassingBus
from tests.fakes.turns_llm import Turn
from tests.flow.open_gateway import open_gateway
from tests.flow.open_responses import FEATURES, MODEL, open_responses
from tests.flow.responses_stream import PUBLISHED
from tests.flow.test_responses_sdk import CALLS, HELLO, F
from tg_base.bus.memory import MemoryBus
from tg_base.config import ApiKey, GatewayConfig
from tg_base.llm import LlmChunk
from tg_gateway.dialects import KEPT_SECONDS, Keep
from tg_gateway.jobs import JobLogs, JobStore
from tg_schema import Message
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BusError, IncompleteStream, NotFound, TooLarge
from tg_schema.topics import Topics

TOKENS = ("one-token", "other-token")
LOCKED = GatewayConfig(
    port=0,
    drain=0.05,
    keys=tuple(ApiKey(name=token, sha256=hashlib.sha256(token.encode()).hexdigest()) for token in TOKENS),
)


async def gather(stream: AsyncIterator[Any], events: list[Any]) -> None:
    """Add the events of a stream one by one, so that those before a failure are there."""
    async for event in stream:
        events += [event]


async def test_a_whole_response_is_kept_and_deleted() -> None:
    async with open_responses(HELLO) as it:
        kept = it.client.responses
        said = await kept.create(model=MODEL, input="hi", store=True, metadata={"a": "b"})
        assert said.to_dict()["store"] is True
        assert (await kept.retrieve(said.id)).to_dict() == said.to_dict()
        await kept.delete(said.id)
        for asking in (kept.retrieve(said.id), kept.delete(said.id), kept.input_items.list(said.id)):
            with pytest.raises(openai.NotFoundError, match="no response of this id"):
                await asking


async def test_without_a_word_about_it_a_response_is_kept() -> None:
    async with open_responses(HELLO) as it:
        kept = it.client.responses
        for fields in ({}, {"store": None}):
            said = await kept.create(model=MODEL, input="hi", extra_body=fields)
            assert (await kept.retrieve(said.id)).to_dict() == said.to_dict() == said.to_dict() | {"store": True}
        async with kept.stream(model=MODEL, input="and?", previous_response_id=said.id) as stream:
            second = await stream.get_final_response()
        assert [turn.text for turn in it.llm.requests[-1].messages] == ["hi", "Hello", "and?"]
        assert (await kept.retrieve(second.id)).output_text == second.output_text
        # To keep events costs with each of them, so it has to be asked for.
        with pytest.raises(openai.BadRequestError, match="store: true"):
            await kept.retrieve(second.id, stream=True)


async def test_a_response_is_not_kept_against_the_clients_will() -> None:
    async with open_responses(HELLO) as it:
        said = await it.client.responses.create(model=MODEL, input="hi", store=False)
        assert said.to_dict()["store"] is False
        with pytest.raises(openai.NotFoundError):
            await it.client.responses.retrieve(said.id)


@pytest.mark.parametrize(
    "config",
    [
        GatewayConfig(port=0, drain=0.05, store=False),
        replace(LOCKED, store=False),
        replace(LOCKED, keys=tuple(replace(key, store=key.name != TOKENS[0]) for key in LOCKED.keys)),
    ],
)
async def test_nothing_is_kept_where_the_configuration_forbids_it(config: GatewayConfig) -> None:
    async with (
        open_responses(HELLO, config=config) as it,
        AsyncOpenAI(base_url=str(it.client.base_url), api_key=TOKENS[0], max_retries=0) as client,
    ):
        for store in (openai.omit, True):
            said = await client.responses.create(model=MODEL, input="hi", store=store)
            assert said.to_dict()["store"] is False
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(said.id)
        with pytest.raises(openai.BadRequestError, match="nothing is kept for your key") as raised:
            await client.responses.create(model=MODEL, input="hi", background=True)
        assert raised.value.param == "background"
        if config.store:
            other = client.with_options(api_key=TOKENS[1])
            said = await other.responses.create(model=MODEL, input="hi")
            assert said.to_dict()["store"] is True


async def test_a_stream_can_be_read_again_from_any_event() -> None:
    async with open_responses(HELLO) as it:
        stream = await it.client.responses.create(model=MODEL, input="hi", store=True, stream=True)
        events: list[Any] = []
        async for event in stream:
            events.append(event)
            if event.type == "response.completed":
                # Whoever has the end of a stream finds it: no wait, no second attempt.
                assert (await it.client.responses.retrieve(event.response.id)).to_dict() == event.response.to_dict()
        assert events[-1].type == "response.completed"
        name = events[0].response.id
        for after in (None, 0, 3, len(events) - 1, 10_000):
            fields: Any = {} if after is None else {"starting_after": after}
            again = await it.client.responses.retrieve(name, stream=True, **fields)
            told = [event async for event in again]
            first = 0 if after is None else after + 1
            assert [event.to_dict() for event in told] == [event.to_dict() for event in events[first:]]
            for event in told:
                PUBLISHED.validate_python(event.to_dict())


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_conversation_goes_on(streamed: bool) -> None:
    thinking: Turn = (LlmChunk(reasoning="hm"), LlmChunk(signature="X:proof"), *CALLS)
    async with open_responses(thinking, HELLO, HELLO, features=FEATURES) as it:
        ask: Any = {"model": MODEL, "tools": [F], "store": True, "include": ["reasoning.encrypted_content"]}

        async def create(**fields: Any) -> Any:
            if not streamed:
                return await it.client.responses.create(**ask, **fields)
            async with it.client.responses.stream(**ask, **fields) as stream:
                return await stream.get_final_response()

        first = await create(input="hi", instructions="Be brief.")
        calls = [item for item in first.output if item.type == "function_call"]
        outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "done"} for call in calls]
        second = await create(input=outputs, previous_response_id=first.id)
        assert second.previous_response_id == first.id
        await it.client.responses.delete(first.id)
        await create(input="and now?", previous_response_id=second.id)
        assert [request.system for request in it.llm.requests] == ["Be brief.", None, None]
        user, assistant, *tools, answer, last = it.llm.requests[2].messages
        assert user == Message("user", "hi")
        assert assistant.parts[0] == ReasoningPart("hm", "X:proof")
        assert [call.id for call in assistant.tool_calls] == ["c1", "c2"]
        assert [(turn.tool_call_id, turn.text) for turn in tools] == [("c1", "done"), ("c2", "done")]
        assert (answer.role, answer.text, last) == ("assistant", "Hello", Message("user", "and now?"))


async def test_a_reference_stands_for_an_item_that_is_kept() -> None:
    async with open_responses(CALLS, HELLO, HELLO, features=FEATURES) as it:
        ask: Any = {"model": MODEL, "tools": [F], "store": True}
        first = await it.client.responses.create(input="hi", **ask)
        calls: Any = [item for item in first.output if item.type == "function_call"]
        [question] = [item async for item in it.client.responses.input_items.list(first.id)]
        named: Any = [{"type": "item_reference", "id": item.id} for item in (question, *first.output)]
        outputs: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "done"} for call in calls]
        # Without a previous response the references are the conversation; with it they name what is there anyway.
        second = await it.client.responses.create(input=[*named, *outputs], **ask)
        await it.client.responses.create(input=[*named[1:], *outputs], previous_response_id=first.id, **ask)
        assert it.llm.requests[1].messages == it.llm.requests[2].messages
        assert [turn.role for turn in it.llm.requests[1].messages] == ["user", "assistant", "tool", "tool"]
        listed: Any = [item async for item in it.client.responses.input_items.list(second.id, order="asc")]
        assert [item.id for item in listed[: len(named)]] == [each["id"] for each in named]
        # Ids stay through a conversation: the first response is not needed for its items.
        await it.client.responses.delete(first.id)
        again: Any = [named[1], {"role": "user", "content": "and?"}]
        await it.client.responses.create(input=again, previous_response_id=second.id, **ask)
        assert [turn.role for turn in it.llm.requests[3].messages][-2:] == ["assistant", "user"]
        for lost in (named[1]["id"], "msg_x", "", question.id + "0"):
            with pytest.raises(openai.BadRequestError, match="send the item itself") as raised:
                await it.client.responses.create(input=[{"type": "item_reference", "id": lost}], **ask)
            assert raised.value.param == "input[0].id"


async def test_references_to_many_responses_are_refused() -> None:
    async with open_responses(HELLO) as it:
        named: Any = [{"type": "item_reference", "id": f"msg_{number:032x}0000"} for number in range(20)]
        with pytest.raises(openai.BadRequestError, match="send the item itself"):
            await it.client.responses.create(model=MODEL, input=named)
        kept = [await it.client.responses.create(model=MODEL, input="hi", store=True) for _ in range(17)]
        named = [{"type": "item_reference", "id": response.output[0].id} for response in kept]
        with pytest.raises(openai.BadRequestError, match="more than 16 responses") as raised:
            await it.client.responses.create(model=MODEL, input=named)
        assert raised.value.param == "input[0].id"
        assert (await it.client.responses.create(model=MODEL, input=named[1:])).status == "completed"
        assert [turn.text for turn in it.llm.requests[-1].messages] == ["Hello"] * 16
        # A small body could otherwise name a large item thousands of times.
        with pytest.raises(openai.BadRequestError, match="once") as raised:
            await it.client.responses.create(model=MODEL, input=[named[1], named[2], named[1]])
        assert raised.value.param == "input[2].id"


async def test_a_long_run_may_refer_to_all_that_came_before() -> None:
    async with open_responses(HELLO) as it:
        # As the AI SDK goes on: its own items as they are, the model's by their ids.
        said: list[Any] = []
        for number in range(20):
            said += [{"role": "user", "content": str(number)}]
            response = await it.client.responses.create(model=MODEL, input=said)
            said += [{"type": "item_reference", "id": item.id} for item in response.output]
        texts = [turn.text for turn in it.llm.requests[-1].messages]
        assert texts == [text for number in range(20) for text in (str(number), "Hello")][:-1]


async def test_input_items_come_in_pages() -> None:
    async with open_responses(HELLO, HELLO) as it:
        first = await it.client.responses.create(model=MODEL, input="one", store=True)
        more: Any = [{"role": "user", "content": [{"type": "input_text", "text": str(number)}]} for number in range(3)]
        said = await it.client.responses.create(model=MODEL, input=more, previous_response_id=first.id, store=True)
        listed = it.client.responses.input_items
        newest: Any = [item async for item in listed.list(said.id, limit=2)]
        assert [item.content[0].text for item in newest] == ["2", "1", "0", "Hello", "one"]
        oldest: Any = [item async for item in listed.list(said.id, order="asc")]
        assert [item.id for item in oldest] == [item.id for item in reversed(newest)]
        assert [item.role for item in oldest] == ["user", "assistant", "user", "user", "user"]
        for wrong in ({"limit": 0}, {"limit": "050" + "9" * 5000}, {"limit": "x"}, {"order": "up"}, {"after": "msg_x"}):
            fields: Any = wrong
            with pytest.raises(openai.BadRequestError) as raised:
                await listed.list(said.id, **fields)
            assert raised.value.param == next(iter(wrong))


async def test_a_response_is_its_keys_alone() -> None:
    async with open_responses(HELLO, config=LOCKED) as it:
        url = str(it.client.base_url)
        async with (
            AsyncOpenAI(base_url=url, api_key=TOKENS[0], max_retries=0) as one,
            AsyncOpenAI(base_url=url, api_key=TOKENS[1], max_retries=0) as other,
        ):
            said = await one.responses.create(model=MODEL, input="hi", store=True)
            theirs = other.responses
            for asking in (
                theirs.retrieve(said.id),
                theirs.retrieve(said.id, stream=True),
                theirs.cancel(said.id),
                theirs.delete(said.id),
                theirs.input_items.list(said.id),
            ):
                with pytest.raises(openai.NotFoundError):
                    await asking
            with pytest.raises(openai.BadRequestError) as raised:
                await theirs.create(model=MODEL, input="and?", previous_response_id=said.id)
            assert (raised.value.param, raised.value.code) == ("previous_response_id", "previous_response_not_found")
            assert (await one.responses.retrieve(said.id)).output_text == "Hello"


@pytest.mark.parametrize("name", ["resp_1", "resp_" + "0" * 32, "%2e%2e%2fx", "resp_ä", "x" * 200])
async def test_what_was_never_kept_is_not_found(name: str) -> None:
    async with open_responses(HELLO) as it:
        for method in ("GET", "DELETE"):
            async with it.opened.http.request(method, f"v1/responses/{name}") as response:
                assert response.status == 404
                assert (await response.json())["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("after", ["x", "-", "1.5", "9" * 5000])
async def test_the_number_to_start_after_is_checked(after: str) -> None:
    async with open_responses(HELLO) as it:
        async with it.client.responses.stream(model=MODEL, input="hi", store=True) as stream:
            name = (await stream.get_final_response()).id
        query = {"stream": "true", "starting_after": after}
        async with it.opened.http.get(f"v1/responses/{name}", params=query) as response:
            assert response.status == (200 if after.isdecimal() else 400)


async def test_a_response_that_failed_is_not_kept() -> None:
    async with open_responses(("Hel", IncompleteStream("cut"))) as it:
        stream = await it.client.responses.create(model=MODEL, input="hi", store=True, stream=True)
        events: list[Any] = []
        with pytest.raises(openai.APIConnectionError):
            await gather(stream, events)
        with pytest.raises(openai.NotFoundError):
            await it.client.responses.retrieve(events[0].response.id)


class _FullBus(PassingBus):
    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        raise BusError("the broker is full")


async def test_what_cannot_be_kept_fails() -> None:
    llm = CountingLlm()
    async with (
        open_gateway(llm=llm, bus=_FullBus(MemoryBus())) as it,
        AsyncOpenAI(base_url=f"{it.gateway.url}v1", api_key="any", max_retries=0) as client,
    ):
        with pytest.raises(openai.InternalServerError, match="full"):
            await client.responses.create(model=MODEL, input="2", store=True)
        llm.step = asyncio.Semaphore(1)
        stream = await client.responses.create(model=MODEL, input="2", store=True, stream=True)
        events: list[Any] = [await anext(aiter(stream))]
        llm.step.release()
        with pytest.raises(openai.APIConnectionError):
            await gather(stream, events)
        kinds = [event.type.removeprefix("response.") for event in events]
        assert (kinds[0], kinds[-1]) == ("created", "failed")
        assert "completed" not in kinds
        assert events[-1].response.error.message == "the broker is full"


async def test_what_nobody_asked_to_keep_does_not_fail() -> None:
    async with open_responses(HELLO, bus=_FullBus(MemoryBus())) as it:
        assert (await it.client.responses.create(model=MODEL, input="2")).output_text == "Hello"
        async with it.client.responses.stream(model=MODEL, input="2") as stream:
            assert (await stream.get_final_response()).output_text == "Hello"


async def test_a_conversation_that_is_too_large_is_refused_before_it_is_asked() -> None:
    config = GatewayConfig(port=0, drain=0.05, body_limit=4_000_000)
    async with open_responses(HELLO, config=config) as it:
        with pytest.raises(openai.BadRequestError, match="store: false"):
            await it.client.responses.create(model=MODEL, input="x" * 2_000_000, store=True)
        assert it.llm.requests == []
        # Without a word about it, it is answered, and says that it is not kept.
        said = await it.client.responses.create(model=MODEL, input="x" * 2_000_000)
        assert said.to_dict()["store"] is False


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_an_answer_expires() -> None:
    bus, clock = MemoryBus(), _Clock()
    store = JobStore(JobLogs(bus, Topics(), clock))
    await store.keep("k", Keep("a", lambda: b"1"))
    clock.now += KEPT_SECONDS - 1
    assert (await store.of("k").read("a")).end == b"1"
    clock.now += 1
    with pytest.raises(NotFound):
        await store.of("k").read("a")
    assert await bus.read(Topics().kept("a")) == ()


async def test_what_has_expired_is_erased_with_the_next_that_is_kept() -> None:
    bus, clock = MemoryBus(), _Clock()
    store = JobStore(JobLogs(bus, Topics(), clock))
    await store.keep("k", Keep("a", lambda: b"1"))
    clock.now += KEPT_SECONDS
    await store.keep("other", Keep("b", lambda: b"2"))
    assert await bus.read(Topics().kept("a")) == ()


async def test_a_key_over_its_bounds_loses_its_oldest_answers() -> None:
    store = JobStore(JobLogs(MemoryBus(), Topics(), key_answers=3, key_bytes=100))

    async def kept(key: str) -> list[str]:
        return [name for name in "abcdefg" if await found(key, name)]

    async def found(key: str, name: str) -> bool:
        try:
            return bool(await store.of(key).read(name))
        except NotFound:
            return False

    for name in "abcd":
        await store.keep("k", Keep(name, lambda: b"x"))
    await store.keep("other", Keep("e", lambda: b"x"))
    assert (await kept("k"), await kept("other")) == (["b", "c", "d"], ["e"])
    await store.of("k").erase("c")
    await store.keep("k", Keep("f", lambda: b"x" * 98))
    assert await kept("k") == ["b", "d", "f"]
    await store.keep("k", Keep("g", lambda: b"xx"))
    assert await kept("k") == ["f", "g"]


async def test_all_keys_together_have_a_bound() -> None:
    bus = MemoryBus()
    store = JobStore(JobLogs(bus, Topics(), all_bytes=10))
    for number in range(6):
        await store.keep(f"key-{number}", Keep(f"a{number}", lambda: b"x" * 4))
    kept = [bool(await bus.read(Topics().kept(f"a{number}"))) for number in range(6)]
    assert kept == [False] * 4 + [True] * 2
    # What is deleted makes room.
    await store.of("key-5").erase("a5")
    await store.keep("key-6", Keep("a6", lambda: b"x" * 4))
    assert (await store.of("key-4").read("a4")).end == b"xxxx"


@pytest.mark.parametrize("expires", ["", "soon", "-1", "nan"])
async def test_what_somebody_else_wrote_is_not_found(expires: str) -> None:
    bus = MemoryBus()
    await bus.append(Topics().kept("a"), b"{}", {"key": "k", "expires": expires})
    with pytest.raises(NotFound):
        await JobStore(JobLogs(bus, Topics())).of("k").read("a")


async def test_an_answer_has_a_limit() -> None:
    store = JobStore(JobLogs(MemoryBus(), Topics()))
    with pytest.raises(TooLarge):
        await store.keep("k", Keep("a", lambda: bytes(4 * 1024 * 1024 + 1)))
