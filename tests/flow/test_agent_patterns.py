"""Patterns over the same loop: a plan whose steps are carried out, and a supervisor with other agents."""

from pathlib import Path

from tests.fakes.turns_llm import TurnsLlm
from tests.flow.agent_dialog import BASE, pipeline
from tests.flow.agent_turns import call
from tg_flow.agent.patterns.plan_then_execute import steps_of

ADD = """
[tools.add]
kind = "python"
options.function = "tests.fakes.tools:add"
"""


async def test_a_plan_is_made_and_carried_out(tmp_path: Path) -> None:
    llm = TurnsLlm(
        ("1. Add two", "\n2. Say it\n"),
        call("add", a=1),
        ("Final Answer: it is 2",),
        ("Final Answer: two",),
        ("The answer", " is two."),
    )
    async with pipeline(llm, tmp_path, BASE + ADD) as it:
        told = await it.tell("How much?", pattern="plan-then-execute")
        assert told.messages == [
            ("thought", "1. Add two\n2. Say it\n"),
            ("thought", "so"),
            ("action", '{"tool":"add","arguments":{"a":1}}'),
            ("observation", "2"),
            ("thought", "it is 2"),
            ("thought", "two"),
            ("answer", "The answer is two."),
        ]
        assert told.records[-1].in_token == 50
        assert "add: Adds two numbers." in (llm.requests[0].system or "")
        assert "Say it" in (llm.requests[3].prompt or "")
        assert "1. Add two: it is 2" in (llm.requests[3].prompt or "")
        assert "2. Say it: two" in (llm.requests[4].prompt or "")


async def test_a_plan_without_steps_is_the_question(tmp_path: Path) -> None:
    config = BASE.replace("agent = {}", 'agent.pattern = "plan-then-execute"')
    llm = TurnsLlm(("I just answer.",), ("Final Answer: a",), ("b",))
    async with pipeline(llm, tmp_path, config) as it:
        told = await it.tell("How much?", streaming=False)
    assert told.answer == "b"
    assert "How much?" in (llm.requests[1].prompt or "")


def test_steps_as_models_write_them() -> None:
    assert steps_of("The plan:\n1. a b\n 2) c\n- d\n* e\n\nThat is all.") == ["a b", "c", "d", "e"]
    assert len(steps_of("".join(f"{number}. x\n" for number in range(100)))) == 8


TEAM = """
[models.m]
provider = "none"
[flows.default]
text-completion = { model = "m" }
agent = { pattern = "supervisor", agents = ["sums", "poets"], tools = [] }
[flows.sums]
text-completion = { model = "m" }
agent = { description = "adds numbers", tools = ["add"] }
[flows.poets]
text-completion = { model = "m" }
agent = { tools = [] }
"""


async def test_a_supervisor_asks_other_agents(tmp_path: Path) -> None:
    both = (
        'Thought: ask them\nAction: sums\nAction Input: {"question": "1+1?"}\n'
        'Action: poets\nAction Input: {"question": "a rhyme?"}\n'
    )
    lead = TurnsLlm((both,), ("Final Answer: 2, and a rhyme",))
    models = {
        "sums": TurnsLlm(call("add", a=1), ("Final Answer: it is 2",)),
        "poets": TurnsLlm(("Final Answer: moon",)),
    }
    async with pipeline(lead, tmp_path, TEAM + ADD, models=models) as it:
        told = await it.tell("Sum and rhyme")
    assert "sums: adds numbers" in (lead.requests[0].system or "")
    assert told.answer == "2, and a rhyme"
    by_path: dict[tuple[str, ...], list[str]] = {}
    for record in told.records:
        if record.end_of_message:
            by_path.setdefault(record.path, []).append(record.chunk_type or "")
    assert by_path[("sums",)] == ["thought", "action", "observation", "answer"]
    assert by_path[("poets",)] == ["answer"]
    assert by_path[()] == ["thought", "action", "action", "observation", "observation", "answer"]
    observations = [content for kind, content in told.messages if kind == "observation"]
    assert sorted(observations) == ["2", "it is 2", "moon"]
    last = told.records[-1]
    assert last.in_token == 2 * 10 + 2 * 10 + 10
    assert models["sums"].requests[0].prompt == "Question: 1+1?"


async def test_a_supervisor_hears_of_an_agent_that_fails(tmp_path: Path) -> None:
    lead = TurnsLlm(call("sums", question="?"), ("Final Answer: sorry",))
    models = {"sums": TurnsLlm(("Thought: hm",)), "poets": TurnsLlm(("",))}
    async with pipeline(lead, tmp_path, TEAM + ADD, models=models) as it:
        told = await it.tell()
    assert told.answer == "sorry"
    assert any(content.startswith("error: the model makes no valid tool call") for _, content in told.messages)


async def test_supervisors_of_supervisors(tmp_path: Path) -> None:
    config = TEAM.replace('tools = ["add"]', 'tools = ["add"], pattern = "supervisor", agents = ["poets"]')
    models = {
        "sums": TurnsLlm(call("poets", question="?"), ("Final Answer: b",)),
        "poets": TurnsLlm(("Final Answer: a",)),
    }
    lead = TurnsLlm(call("sums", question="?"), ("Final Answer: c",))
    async with pipeline(lead, tmp_path, config + ADD, models=models) as it:
        told = await it.tell()
    assert told.answer == "c"
    assert {record.path for record in told.records} == {(), ("sums",), ("sums", "poets")}
    assert told.records[-1].in_token == 50
