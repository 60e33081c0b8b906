"""Native tool calls through the real SDKs of OpenAI and Anthropic, against loopback servers of their wires."""

from pathlib import Path

import pytest

from tests.fakes.plan import Fault, Plan, PlannedCall
from tests.flow.agent_dialog import BASE, pipeline
from tests.provider_matrix.case import Case, staged
from tests.provider_matrix.families import anthropic, openai
from tg_schema import TgError, ToolCall

ADD = """
[tools.add]
kind = "python"
options.function = "tests.fakes.tools:add"
"""
CASES = [*openai.CASES[:1], *anthropic.CASES[:1]]


@pytest.fixture(params=CASES, ids=lambda case: case.provider)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


async def test_a_dialog_with_calls_side_by_side(case: Case, tmp_path: Path) -> None:
    calls = (PlannedCall("add", ('{"a"', ": 2, ", '"b": 3}'), "call_1"), PlannedCall("add", ('{"a": 1}',), "call_2"))
    async with staged(case) as stage, stage.opened() as llm, pipeline(llm, tmp_path, BASE + ADD) as it:
        stage.wire.play(
            Plan(("Thought: I must", " add."), calls=calls, finish="tool_calls"),
            Plan(("Final Answer: ", "It ", "is 5 and 2.")),
        )
        told = await it.tell("How much?")
        assert told.messages[:3] == [
            ("thought", "I must add."),
            ("action", '{"tool":"add","arguments":{"a":2,"b":3}}'),
            ("action", '{"tool":"add","arguments":{"a":1}}'),
        ]
        assert told.answer == "It is 5 and 2."
        assert (told.records[-1].in_token, told.records[-1].out_token) == (22, 14)
        asked = (await stage.wire.exchange(1)).asked
    assert asked is not None, "the provider refused the conversation"
    assert [tool.name for tool in asked.tools] == ["add"]
    question, calling, *results = asked.turns
    assert (question.role, question.text) == ("user", "How much?")
    assert calling.text == "I must add."
    assert [(call.id, call.name) for call in calling.tool_calls] == [("call_1", "add"), ("call_2", "add")]
    assert calling.tool_calls[1] == ToolCall("call_2", "add", calling.tool_calls[1].arguments)
    assert [(result.tool_call_id, result.text) for result in results] == [("call_1", "5"), ("call_2", "2")]


async def test_a_connection_that_breaks_in_mid_thought(case: Case, tmp_path: Path) -> None:
    async with staged(case) as stage, stage.opened() as llm, pipeline(llm, tmp_path, BASE + ADD) as it:
        stage.wire.play(Plan(("Thought: I", " th", "ink"), fault=Fault.ABORT, after=2))
        told = await it.tell()
    assert isinstance(told.error, TgError)
    assert told.error.type in {"incomplete-stream", "unavailable"}


async def test_a_call_that_breaks_the_schema_goes_back_to_the_model(case: Case, tmp_path: Path) -> None:
    async with staged(case) as stage, stage.opened() as llm, pipeline(llm, tmp_path, BASE + ADD) as it:
        stage.wire.play(
            Plan((), calls=(PlannedCall("add", ('{"a": "x"}',)),), finish="tool_calls"),
            Plan((), calls=(PlannedCall("add", ('{"a": 4}',)),), finish="tool_calls"),
            Plan(("Final Answer: 5",)),
        )
        assert (await it.tell()).answer == "5"
        asked = (await stage.wire.exchange(1)).asked
    assert asked is not None
    assert asked.turns[-1].text.startswith("error: the arguments do not fit the tool's schema")
