"""Patterns over the same loop: a plan whose steps are carried out, and a supervisor with other agents."""

from pathlib import Path

import pytest

from tests.fakes.turns_llm import TEXT_ONLY, TurnsLlm
from tests.flow.agent_dialog import BASE, pipeline, tell
from tests.flow.agent_turns import call
from tg_base.llm import LlmChunk
from tg_flow.agent.core.plan_reader import PlanReader
from tg_flow.agent.parsing import Event, ReactParser, TextDelta
from tg_flow.agent.patterns import steps_of
from tg_schema import COMMON_FEATURES, TextCompletionResponse
from tg_schema.errors import ProtocolError
from tg_schema.features import Feature

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
    told = await tell(llm, tmp_path, BASE + ADD, question="How much?", pattern="plan-then-execute")
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
    told = await tell(llm, tmp_path, config, question="How much?", streaming=False)
    assert told.answer == "b"
    assert "How much?" in (llm.requests[1].prompt or "")


LIST = "1. Add two\n2. Say it"
PLANS: list[tuple[str, list[tuple[str, str]]]] = [
    (LIST, [("answer", LIST)]),
    (f"Thought: I plan.\nFinal Answer:\n{LIST}", [("thought", "I plan."), ("answer", LIST)]),
    (f"I plan.\nFinal Answer:\n{LIST}", [("thought", "I plan."), ("answer", LIST)]),
    (f"```\nThought: I plan.\nFinal Answer: {LIST}\n```", [("thought", "I plan."), ("answer", LIST)]),
    (f"Thought: {LIST}", [("thought", LIST)]),
    ('```json\n["Add two", "Say\\nit"]\n```', [("answer", LIST)]),
    ('Here it is:\n```json\n{"steps": ["Add two", "Say it"]}\n```\nDone.', [("answer", f"Here it is:\n{LIST}\nDone.")]),
    ('Final Answer: {"n": 2, "plan": [{"step": 1, "task": "Add two"}, {"goal": "Say it"}]}', [("answer", LIST)]),
    (f"{LIST} with `say`", [("answer", f"{LIST} with `say`")]),
    ('{"steps": [1, 2]}', [("answer", '{"steps": [1, 2]}')]),
    ("[1] is a\n- list", [("answer", "[1] is a\n- list")]),
]


@pytest.mark.parametrize(("text", "told"), PLANS)
def test_a_plan_is_read_however_it_is_written_and_cut(text: str, told: list[tuple[str, str]]) -> None:
    for cut in range(len(text)):
        reader, events = PlanReader(ReactParser(actions=False, hold=240)), list[Event]()
        for piece in (text[:cut], text[cut:]):
            events += reader.feed(TextCompletionResponse(response=piece))
        events += reader.end()
        texts = [event for event in events if isinstance(event, TextDelta)]
        kinds = dict.fromkeys(event.kind for event in texts)
        assert [(kind, "".join(event.text for event in texts if event.kind == kind)) for kind in kinds] == told


@pytest.mark.parametrize("plan", [text for text, _ in PLANS[:8]])
async def test_the_steps_of_a_plan_are_carried_out_however_it_is_written(tmp_path: Path, plan: str) -> None:
    llm = TurnsLlm((plan,), ("Final Answer: a",), ("Final Answer: b",), ("c",))
    told = await tell(llm, tmp_path, pattern="plan-then-execute")
    assert told.answer == "c"
    assert ["Add two" in (request.prompt or "") for request in llm.requests] == [False, True, True, True]
    assert not any("Final Answer" in text or "```" in text for _, text in told.messages)


@pytest.mark.parametrize(
    ("said", "messages"),
    [
        (("Thought: I know it.\nFinal ", "Answer: It is 2."), [("thought", "I know it."), ("answer", "It is 2.")]),
        (("```\nFinal Answer: It is 2.\n```",), [("answer", "It is 2.")]),
        (("Thought: It is 2.",), [("thought", "It is 2."), ("answer", "It is 2.")]),
        ((LlmChunk(reasoning="hm"), "It is 2."), [("thought", "hm"), ("answer", "It is 2.")]),
        (('```json\n{"answer": 2}\n```',), [("answer", '```json\n{"answer": 2}\n```')]),
    ],
)
@pytest.mark.parametrize("features", [TEXT_ONLY, COMMON_FEATURES])
async def test_the_conclusion_is_read_like_any_answer(
    tmp_path: Path, said: tuple[str | LlmChunk, ...], messages: list[tuple[str, str]], features: frozenset[Feature]
) -> None:
    """JSON is what was asked for."""
    llm = TurnsLlm((LlmChunk(reasoning="so"), "1. a"), ("Final Answer: b",), said, features=features)
    async with pipeline(llm, tmp_path) as it:
        told = await it.tell(pattern="plan-then-execute")
        assert told.messages == [("thought", "so"), ("thought", "1. a"), ("thought", "b"), *messages]
        llm.requests.clear()
        assert (await it.tell(pattern="plan-then-execute", streaming=False)).answer == messages[-1][1]


async def test_a_conclusion_without_text_is_an_error(tmp_path: Path) -> None:
    assert isinstance(
        (
            await tell(
                TurnsLlm(("1. a",), ("Final Answer: b",), ("Final Answer: ",)), tmp_path, pattern="plan-then-execute"
            )
        ).error,
        ProtocolError,
    )


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
    told = await tell(lead, tmp_path, TEAM + ADD, models=models, question="Sum and rhyme")
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
    told = await tell(lead, tmp_path, TEAM + ADD, models=models)
    assert told.answer == "sorry"
    assert any(content.startswith("error: the model makes no valid tool call") for _, content in told.messages)


async def test_supervisors_of_supervisors(tmp_path: Path) -> None:
    config = TEAM.replace('tools = ["add"]', 'tools = ["add"], pattern = "supervisor", agents = ["poets"]')
    models = {
        "sums": TurnsLlm(call("poets", question="?"), ("Final Answer: b",)),
        "poets": TurnsLlm(("Final Answer: a",)),
    }
    lead = TurnsLlm(call("sums", question="?"), ("Final Answer: c",))
    told = await tell(lead, tmp_path, config + ADD, models=models)
    assert told.answer == "c"
    assert {record.path for record in told.records} == {(), ("sums",), ("sums", "poets")}
    assert told.records[-1].in_token == 50
