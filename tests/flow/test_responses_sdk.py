"""The Responses API as OpenAI's own SDK uses it, unmodified: sync, async, `.stream()` and `.parse()`."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.token_counter import TokenCounter
from tests.fakes.turns_llm import Turn
from tests.flow.open_gateway import open_gateway
from tests.flow.open_responses import MODEL, PLAIN_FEATURES, open_responses
from tg_base.llm import LlmChunk
from tg_schema import Message, ToolCallDelta
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import IncompleteStream, RateLimited

HELLO: Turn = ("Hel", "lo")
THINKS: Turn = (LlmChunk(reasoning="so "), LlmChunk(reasoning="it is"), LlmChunk(signature="X:proof"), "Yes")
CALLS: Turn = (
    "Wait",
    ToolCallDelta(0, "c1", "f", '{"a"'),
    ToolCallDelta(1, "c2", "f", "{}"),
    ToolCallDelta(0, arguments=":1}"),
)
IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "https://localhost/cat.png"}]}
F: Any = {
    "type": "function",
    "name": "f",
    "description": "does f",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": False,
}


def common(response: Response) -> dict[str, Any]:
    """What the answers to two equal requests have in common: all but ids and times."""
    said = json.loads(response.to_json())
    for name in ("id", "created_at", "completed_at"):
        del said[name]
    for item in said["output"]:
        del item["id"]
        for part in item.get("content") or ():
            part.pop("parsed", None)
        item.pop("parsed_arguments", None)
    return dict(said)


@pytest.mark.parametrize("turn", [HELLO, THINKS, CALLS, ()])
async def test_a_stream_ends_with_the_whole_answer(turn: Turn) -> None:
    async with open_responses(turn) as it:
        ask: Any = {"model": MODEL, "input": "hi", "tools": [F], "include": ["reasoning.encrypted_content"]}
        whole = await it.client.responses.create(**ask)
        async with it.client.responses.stream(**ask) as stream:
            events = [event async for event in stream]
            final = await stream.get_final_response()
        assert events[-1].type == "response.completed"
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert common(final) == common(whole)
        assert whole.output_text == "".join(
            event.delta for event in events if event.type == "response.output_text.delta"
        )


async def test_the_synchronous_client() -> None:
    async with open_responses(HELLO) as it:
        url = str(it.client.base_url)

        def ask() -> tuple[str, str]:
            with OpenAI(base_url=url, api_key="any", max_retries=0) as client:
                whole = client.responses.create(model=MODEL, input="hi").output_text
                with client.responses.stream(model=MODEL, input="hi") as stream:
                    return whole, stream.get_final_response().output_text

        assert await asyncio.to_thread(ask) == ("Hello", "Hello")


class Point(BaseModel):
    x: int


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_of_a_schema_is_parsed(streamed: bool) -> None:
    async with open_responses(('{"x"', ":7}")) as it:
        if streamed:
            async with it.client.responses.stream(model=MODEL, input="hi", text_format=Point) as stream:
                parsed = (await stream.get_final_response()).output_parsed
        else:
            parsed = (await it.client.responses.parse(model=MODEL, input="hi", text_format=Point)).output_parsed
        assert parsed == Point(x=7)
        assert (it.llm.requests[0].schema or {})["properties"].keys() == {"x"}


async def test_calls_and_thinking_come_back_with_the_next_request() -> None:
    turn: Turn = (LlmChunk(reasoning="hm"), LlmChunk(signature="X:proof"), *CALLS)
    async with open_responses(turn, HELLO) as it:
        include: Any = ["reasoning.encrypted_content"]
        first = await it.client.responses.create(model=MODEL, input="hi", tools=[F], include=include, store=False)
        calls = [item for item in first.output if item.type == "function_call"]
        assert [(call.call_id, call.arguments) for call in calls] == [("c1", '{"a":1}'), ("c2", "{}")]
        items: Any = [{"role": "user", "content": "hi"}, *(item.to_dict() for item in first.output)]
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": "done"} for call in calls]
        second = await it.client.responses.create(model=MODEL, input=items, tools=[F], store=False)
        assert second.output_text == "Hello"
        user, assistant, *tools = it.llm.requests[1].messages
        assert user == Message("user", "hi")
        assert assistant.parts[0] == ReasoningPart("hm", "X:proof")
        assert (assistant.text, [call.arguments for call in assistant.tool_calls]) == ("Wait", ['{"a":1}', "{}"])
        assert [(turn.role, turn.tool_call_id, turn.text) for turn in tools] == [
            ("tool", "c1", "done"),
            ("tool", "c2", "done"),
        ]


async def test_a_limit_makes_it_incomplete() -> None:
    async with open_responses(("Hel", LlmChunk(in_token=3, out_token=1, finish_reason="length"))) as it:
        whole = await it.client.responses.create(model=MODEL, input="hi", max_output_tokens=1)
        assert (whole.status, whole.incomplete_details and whole.incomplete_details.reason) == (
            "incomplete",
            "max_output_tokens",
        )


@pytest.mark.parametrize(
    ("fields", "kind", "says"),
    [
        ({"model": "nobody"}, openai.NotFoundError, "there is no model 'nobody'"),
        ({"max_output_tokens": 0}, openai.BadRequestError, "max_output_tokens"),
        ({"previous_response_id": "resp_1"}, openai.BadRequestError, "send the earlier items in input"),
        ({"background": True, "store": False}, openai.BadRequestError, "background: false"),
        ({"reasoning": {"effort": "high"}}, openai.BadRequestError, "the model can't do this: reasoning"),
        ({"input": [IMAGE]}, openai.BadRequestError, "the model can't do this: images"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, openai.BadRequestError, "send the item itself"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_refusal_raises_the_right_class(
    fields: dict[str, Any], kind: type[openai.APIStatusError], says: str, streamed: bool
) -> None:
    async with open_responses(HELLO, features=PLAIN_FEATURES - {"images"}) as it:
        with pytest.raises(kind, match=says):
            await it.client.responses.create(**({"model": MODEL, "input": "hi"} | fields), stream=streamed)
        assert it.llm.requests == []


async def test_an_error_of_the_provider_before_the_first_byte() -> None:
    async with open_responses((RateLimited("slow down", retry_after=60.0),)) as it:
        with pytest.raises(openai.RateLimitError) as raised:
            await it.client.responses.create(model=MODEL, input="hi", stream=True)
        assert raised.value.code == "rate_limit_exceeded"


async def test_a_failure_in_mid_stream_is_never_a_clean_end() -> None:
    async with open_responses(("Hel", IncompleteStream("the provider's stream was cut"))) as it:
        stream = await it.client.responses.create(model=MODEL, input="hi", stream=True)
        events: list[Any] = []
        with pytest.raises(openai.APIConnectionError):
            await _gather(stream, events)
        assert events[-1].type == "response.failed"
        assert events[-1].response.error is not None
        assert events[-1].response.error.message == "the provider's stream was cut"


async def _gather(stream: AsyncIterator[Any], events: list[Any]) -> None:
    async for event in stream:
        events += [event]


@pytest.mark.parametrize("tokens", [0, 3])
async def test_a_client_that_leaves_a_stream_stops_the_model(tokens: int) -> None:
    llm = CountingLlm()
    llm.step = asyncio.Semaphore(0)
    async with open_gateway(llm=llm) as it, AsyncOpenAI(base_url=f"{it.gateway.url}v1", api_key="any") as client:
        asking = asyncio.create_task(_read(client, llm.step, tokens))
        await llm.started.wait()
        if tokens:
            await asking
        else:
            asking.cancel()
        await asyncio.wait_for(llm.stopped.wait(), 5)
        assert llm.generated == tokens


async def _read(client: AsyncOpenAI, step: asyncio.Semaphore, tokens: int) -> None:
    """Read as many tokens, then leave; without any, wait for the first."""
    if tokens:
        step.release()
    async with await client.responses.create(model=MODEL, input="1000", stream=True) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                tokens -= 1
                if not tokens:
                    return
                step.release()


async def test_a_client_that_does_not_wait_for_a_whole_answer_stops_the_model() -> None:
    llm = CountingLlm()
    llm.step = asyncio.Semaphore(3)
    async with open_gateway(llm=llm) as it, AsyncOpenAI(base_url=f"{it.gateway.url}v1", api_key="any") as client:
        asking = asyncio.create_task(client.responses.create(model=MODEL, input="1000"))
        await llm.started.wait()
        asking.cancel()
        await asyncio.wait_for(llm.stopped.wait(), 5)
        assert llm.generated <= 3


async def test_tokens_of_a_request_are_counted() -> None:
    async with open_responses(llm=TokenCounter(MODEL)) as it:
        counted = await it.client.responses.input_tokens.count(model=MODEL, input="how many", instructions="count")
        assert (counted.object, counted.input_tokens) == ("response.input_tokens", 3)
        assert it.llm.requests[0].operation == "count-tokens"


async def test_a_model_that_does_not_count_is_named() -> None:
    async with open_responses(HELLO, features=PLAIN_FEATURES) as it:
        with pytest.raises(openai.BadRequestError, match="count_tokens"):
            await it.client.responses.input_tokens.count(model=MODEL, input="hi")
