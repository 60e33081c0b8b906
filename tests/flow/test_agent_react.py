"""Agents on the memory bus over a scripted model: thoughts, actions, observations and the answer, as they happen."""

from pathlib import Path

from tests.fakes.turns_llm import TurnsLlm
from tests.flow.agent_dialog import BASE, pipeline

ADD = """
[tools.add]
kind = "python"
options.function = "tests.fakes.tools:add"
"""


async def test_a_tool_is_called_and_the_answer_streams(tmp_path: Path) -> None:
    llm = TurnsLlm(
        ("Thought: I must", " add.\nAction: add\nAction In", 'put: {"a": 2, "b": 3}\n'),
        ("Thought: I know\n", "Final Answer: It ", "is ", "5."),
    )
    async with pipeline(llm, tmp_path, BASE + ADD) as it:
        told = await it.tell("How much is 2 + 3?")
    assert told.messages == [
        ("thought", "I must add."),
        ("action", '{"tool":"add","arguments":{"a":2,"b":3}}'),
        ("observation", "5"),
        ("thought", "I know"),
        ("answer", "It is 5."),
    ]
    last = told.records[-1]
    assert (last.in_token, last.out_token, last.model) == (20, 7, "turns")
