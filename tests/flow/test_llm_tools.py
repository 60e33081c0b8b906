"""What the base does with tools for a provider that lacks it: strict arguments, allowed tools, a single call."""

from contextlib import aclosing
from typing import Any

import pytest

from tests.fakes.answers_llm import AnswersLlm, Steps
from tg_base.llm import LlmChunk, LlmService
from tg_schema import (
    COMMON_FEATURES,
    FinishReason,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    Tool,
    ToolCallDelta,
)
from tg_schema.errors import BadRequest, SchemaViolation

CITY = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
WEATHER, CLOCK = Tool("weather", parameters=CITY, strict=True), Tool("clock", parameters=CITY)
END = LlmChunk(in_token=5, out_token=4, finish_reason="tool_calls")


class HasTools(AnswersLlm):
    """Does all of it itself."""

    features = COMMON_FEATURES | {"strict_tools", "allowed_tools", "parallel_tool_calls"}


def call(index: int, name: str, *arguments: str) -> list[LlmChunk]:
    begun = LlmChunk(tool_calls=(ToolCallDelta(index, f"c{index}", name),))
    return [begun, *(LlmChunk(tool_calls=(ToolCallDelta(index, arguments=piece),)) for piece in arguments)]


async def ask(service: LlmService, **fields: Any) -> list[TextCompletionResponse]:
    request = TextCompletionRequest(prompt="p", **{"tools": (WEATHER, CLOCK), "streaming": True, **fields})
    async with aclosing(service.on_request(request)) as stream:
        return [record async for record in stream]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("kind", [AnswersLlm, HasTools])
async def test_calls_of_a_strict_tool_are_held_to_its_schema(kind: type[AnswersLlm], *, streaming: bool) -> None:
    right = [*call(0, "weather", '{"ci', 'ty": "Oslo"}'), *call(1, "clock", "{}"), END]
    (whole,) = TextCompletionResponse.join(await ask(kind(right), streaming=streaming))
    assert [call.arguments for call in whole.tool_calls] == ['{"city": "Oslo"}', "{}"]
    for wrong in ('{"city": 1}', "{}", '{"city"', "", "[" * 100_000):
        with pytest.raises(SchemaViolation, match="call of weather"):
            await ask(kind([*call(0, "weather", wrong), END]), streaming=streaming)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_call_that_is_cut_says_so_itself(reason: FinishReason) -> None:
    records = await ask(AnswersLlm([*call(0, "weather", '{"ci'), LlmChunk(finish_reason=reason)]))
    assert records[-1].finish_reason == reason


async def test_each_of_several_answers_is_held_to_it() -> None:
    right, wrong = [*call(0, "weather", '{"city": "Oslo"}'), END], [*call(0, "weather", "{}"), END]
    assert (await ask(AnswersLlm(right), sampling=Sampling(n=2)))[-1].end_of_stream
    with pytest.raises(SchemaViolation):
        await ask(AnswersLlm(right, wrong), sampling=Sampling(n=2))


async def test_a_strict_tool_without_a_schema_is_refused() -> None:
    service = AnswersLlm([END])
    with pytest.raises(BadRequest, match="tools: odd: not a valid JSON schema"):
        await ask(service, tools=(Tool("odd", parameters={"type": "blah"}, strict=True),))
    assert service.requests == []


@pytest.mark.parametrize("kind", [AnswersLlm, HasTools])
async def test_a_provider_gets_what_it_knows(kind: type[AnswersLlm]) -> None:
    service = kind([END])
    await ask(service, allowed_tools=("weather",), parallel_tool_calls=False)
    (got,) = service.requests
    if kind is HasTools:
        assert (got.tools, got.allowed_tools, got.parallel_tool_calls) == ((WEATHER, CLOCK), ("weather",), False)
    else:
        plain = Tool("weather", parameters=CITY)
        assert (got.tools, got.allowed_tools, got.parallel_tool_calls) == ((plain,), (), None)


TWO: Steps = [
    LlmChunk("Let me see."),
    *call(0, "clock", '{"city": '),
    LlmChunk(tool_calls=(ToolCallDelta(0, arguments='"Oslo"}'), ToolCallDelta(1, "c1", "weather"))),
    *call(2, "clock", "{}"),
    END,
]


@pytest.mark.parametrize("streaming", [True, False])
async def test_calls_after_the_first_one_are_dropped_where_one_is_wanted(*, streaming: bool) -> None:
    records = await ask(AnswersLlm(TWO), parallel_tool_calls=False, streaming=streaming)
    (whole,) = TextCompletionResponse.join(records)
    assert whole.tool_calls == (ToolCallDelta(0, "c0", "clock", '{"city": "Oslo"}'),)
    assert (whole.response, whole.finish_reason, whole.out_token) == ("Let me see.", "tool_calls", 4)
    assert all(record.response or record.tool_calls or record.end_of_stream for record in records)


async def test_each_of_several_answers_has_one_call() -> None:
    records = await ask(AnswersLlm(TWO), parallel_tool_calls=False, streaming=False, sampling=Sampling(n=2))
    assert [[call.index for call in record.tool_calls] for record in records] == [[0], [0]]


@pytest.mark.parametrize(("kind", "calls"), [(AnswersLlm, 3), (HasTools, 3)])
async def test_several_calls_are_passed_on_otherwise(kind: type[AnswersLlm], calls: int) -> None:
    tools = (CLOCK, Tool("weather"))
    for wanted in (None, True):
        (whole,) = TextCompletionResponse.join(await ask(kind(TWO), tools=tools, parallel_tool_calls=wanted))
        assert len(whole.tool_calls) == calls
