"""The SDK's conversations against a gateway that really listens: turns in; thinking, calls and several answers out."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.fakes.recorded_llm import SEVERAL, RecordedLlm
from tests.fakes.scripted_llm import ScriptedLlm
from tests.flow.open_gateway import Opened, open_gateway
from tg_client import Flow, Sampling, SyncTgClient, TextCompletionResult, TgClient
from tg_schema import ImagePart, Message, TextCompletionResponse, TextPart, Token, Tool, ToolCall, ToolCallDelta
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BadRequest, SchemaViolation
from tg_schema.text_completion import Reasoning

CALLS = (
    TextCompletionResponse(reasoning="I must ", model="recorded"),
    TextCompletionResponse(reasoning="look.", signature="fake:1", model="recorded"),
    TextCompletionResponse(response="Let me see.", tokens=(Token(1, "Let me see.", -0.5),), model="recorded"),
    TextCompletionResponse(tool_calls=(ToolCallDelta(0, "c1", "look", '{"at":', "s1"),), model="recorded"),
    TextCompletionResponse(tool_calls=(ToolCallDelta(0, arguments='"it"}'), ToolCallDelta(1, "c2", "count"))),
    TextCompletionResponse(
        in_token=9, cached_token=4, cache_write_token=2, out_token=7, reasoning_token=3, model="recorded",
        finish_reason="tool_calls", seed=7, end_of_stream=True,
    ),
)  # fmt: skip
"""Thinking, text and two calls, as they stream."""


@pytest.fixture
def model() -> RecordedLlm:
    return RecordedLlm(*SEVERAL)


@pytest.fixture
async def opened(model: RecordedLlm) -> AsyncIterator[Opened]:
    async with open_gateway(instead=model, listed=True) as opened:
        yield opened


async def ask(flow: Flow, *, streaming: bool) -> TextCompletionResult:
    if not streaming:
        return await flow.text_completion("", "x")
    async with flow.text_completion_stream("", "x") as chunks:
        return TextCompletionResult.of([chunk async for chunk in chunks])


@pytest.mark.parametrize("streaming", [False, True])
async def test_calls_thinking_and_counts_are_typed(flow: Flow, model: RecordedLlm, streaming: bool) -> None:
    model.records = CALLS
    result = await ask(flow, streaming=streaming)
    calls = (ToolCall("c1", "look", '{"at":"it"}', "s1"), ToolCall("c2", "count", "{}"))
    assert (result.text, result.reasoning, result.finish_reason) == ("Let me see.", "I must look.", "tool_calls")
    assert result.tool_calls == calls
    assert (result.in_token, result.cached_token, result.cache_write_token) == (9, 4, 2)
    assert (result.out_token, result.reasoning_token, result.model) == (7, 3, "recorded")
    assert ([token.text for token in result.choices[0].tokens], result.choices[0].seed) == (["Let me see."], 7)
    signed = (ReasoningPart("I must look.", "fake:1"), TextPart("Let me see."))
    assert result.turn == result.choices[0].turn == Message("assistant", signed, calls)


@pytest.mark.parametrize("streaming", [False, True])
async def test_each_of_several_answers(flow: Flow, streaming: bool) -> None:
    result = await ask(flow, streaming=streaming)
    assert [(choice.index, choice.text, choice.finish_reason) for choice in result.choices] == [
        (0, "one two", "stop"),
        (1, "uno", "length"),
    ]
    assert (result.text, result.in_token, result.out_token, result.reasoning_token) == ("one two", 5, 9, 2)
    assert result.turn.content == (
        ReasoningPart("hm", "fake:1"), TextPart("one"), ReasoningPart("so", "fake:2"), TextPart(" two"),
    )  # fmt: skip
    assert result.choices[1].turn == Message("assistant", "uno")


async def test_a_conversation_goes_on_with_the_turn_of_an_answer(flow: Flow, model: RecordedLlm) -> None:
    model.records = CALLS
    look = Tool("look", "Looks at a thing.", {"type": "object"}, strict=False)
    asked = Message("user", (TextPart("what?"), ImagePart(data="aGk=")))
    result = await flow.text_completion(
        "be brief",
        messages=[Message("user", [TextPart("what?"), ImagePart(data="aGk=")])],
        tools=[look],
        tool_choice="required",
        reasoning=Reasoning("low", 100),
    )
    told = [Message("tool", "a cat", tool_call_id=call.id) for call in result.tool_calls]
    await flow.text_completion("be brief", "and?", messages=[asked, result.turn, *told], tools=[look])
    first, second = model.requests
    assert (first.messages, first.tools, first.tool_choice) == ((asked,), (look,), "required")
    assert (first.reasoning, first.streaming, first.prompt) == (Reasoning("low", 100), False, "")
    assert second.messages == (asked, result.turn, *told)
    assert second.prompt == "and?"


async def test_a_feature_that_the_model_lacks_is_named(flow: Flow) -> None:
    with pytest.raises(BadRequest, match="the model can't do this: seed"):
        await flow.text_completion("", "x", sampling=Sampling(seed=1))


async def test_the_models_and_the_flow_of_a_model(opened: Opened) -> None:
    async with TgClient(opened.gateway.url) as client, client.socket() as socket:
        for flow in (client.flow(None), socket.flow(None)):
            assert (await flow.text_completion("", "x", model="recorded")).model == "recorded"
        (served,) = await client.models()
        assert (served.flow, served.features) == ("default", tuple(sorted(RecordedLlm.features)))


async def test_blocking_code_has_the_same_calls(opened: Opened) -> None:
    def run() -> None:
        with SyncTgClient(opened.gateway.url) as client:
            flow = client.flow(None)
            assert [row.flow for row in client.models()] == ["default"]
            assert flow.text_completion(messages=[Message("user", "x")]).choices[1].text == "uno"
            with flow.text_completion_stream(messages=[Message("user", "x")]) as chunks:
                assert TextCompletionResult.of(list(chunks)).text == "one two"

    await asyncio.to_thread(run)


SCHEMA = {"type": "object", "required": ["a"]}


async def test_a_whole_answer_is_checked_against_its_schema() -> None:
    for said, right in (('{"a":1}', True), ('```json\n{"a":1}\n```', True), ('{"b":1}', False), ("no", False)):
        async with open_gateway(instead=ScriptedLlm(said)) as it, TgClient(it.gateway.url, retries=0) as client:
            asking = client.flow().text_completion("", "x", schema=SCHEMA)
            if right:
                assert (await asking).text == '{"a":1}'
            else:
                with pytest.raises(SchemaViolation):
                    await asking
