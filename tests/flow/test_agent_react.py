"""Agents on the memory bus over a scripted model: thoughts, actions, observations and the answer, as they happen."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.fakes.turns_llm import TEXT_ONLY, TurnsLlm
from tests.flow.agent_dialog import BASE, pipeline, tell
from tests.flow.agent_turns import DONE, call
from tests.until import until
from tg_base.llm import LlmChunk
from tg_base.runtime import running
from tg_flow.agent.core import AnswerText
from tg_schema import AgentRequest, AgentResponse, AgentStep
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import BadRequest, ContentFilter, ProtocolError, Timeout, TooLarge

TOOLS = """
[tools.add]
kind = "python"
options.function = "tests.fakes.tools:add"
[tools.count]
kind = "python"
options.function = "tests.fakes.tools:count"
[tools.crash]
kind = "python"
options.function = "tests.fakes.tools:crash"
"""


async def test_a_tool_is_called_and_the_answer_streams(tmp_path: Path) -> None:
    llm = TurnsLlm(
        ("Thought: I must", " add.\nAction: add\nAction In", 'put: {"a": 2, "b": 3}\n'),
        ("Thought: I know\n", "Final Answer: It ", "is ", "5."),
    )
    told = await tell(llm, tmp_path, BASE + TOOLS, question="How much is 2 + 3?")
    assert told.messages == [
        ("thought", "I must add."),
        ("action", '{"tool":"add","arguments":{"a":2,"b":3}}'),
        ("observation", "5"),
        ("thought", "I know"),
        ("answer", "It is 5."),
    ]
    last = told.records[-1]
    assert (last.in_token, last.out_token, last.model) == (20, 7, "turns")
    first, second = llm.requests
    assert "add: Adds two numbers." in (first.system or "")
    assert '"required":["a"]' in (first.system or "")
    assert first.prompt == "Question: How much is 2 + 3?"
    assert first.sampling is not None
    assert first.sampling.stop == ("\nObservation:",)
    assert second.prompt == (
        'Question: How much is 2 + 3?\n\nThought: I must add.\nAction: add\nAction Input: {"a":2,"b":3}\nObservation: 5'
    )


async def test_every_token_leaves_before_the_next_is_made(tmp_path: Path) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    llm = TurnsLlm(("Thought: one", gates[0], " two", gates[1], "\nFinal Answer: three", gates[2], " four"))
    async with (
        pipeline(llm, tmp_path) as it,
        it.clients["default"].stream(AgentRequest("q", streaming=True)) as records,
    ):
        for gate, piece in zip([None, *gates], ["one", " two", "three", " four"], strict=True):
            if gate is not None:
                gate.set()
            record = await anext(records)
            while not record.content:
                record = await anext(records)
            assert record.content == piece


async def test_the_whole_answer_in_one_record(tmp_path: Path) -> None:
    told = await tell(
        TurnsLlm(call("add", a=2), ("Final Answer: It is", " 3.")), tmp_path, BASE + TOOLS, streaming=False
    )
    (record,) = told.records
    assert (record.chunk_type, record.content) == ("answer", "It is 3.")
    assert (record.end_of_message, record.end_of_dialog) == (True, True)
    assert (record.in_token, record.out_token, record.model) == (20, 3, "turns")


async def test_an_observation_streams(tmp_path: Path) -> None:
    told = await tell(TurnsLlm(call("count", to=3), DONE), tmp_path, BASE + TOOLS)
    pieces = [record.content for record in told.records if record.chunk_type == "observation"]
    assert "".join(piece or "" for piece in pieces) == "0 1 2 "
    assert len({record.message_id for record in told.records if record.chunk_type == "observation"}) == 1


async def test_calls_run_side_by_side(tmp_path: Path) -> None:
    config = BASE + TOOLS + '[tools.meet]\nkind = "python"\noptions.function = "tests.fakes.tools:meet"\n'
    both = "Thought: so\nAction: meet\nAction Input: {}\nAction: meet\nAction Input: {}\nAction: nope\n"
    llm = TurnsLlm((both,), DONE)
    told = await tell(llm, tmp_path, config)
    assert [content for kind, content in told.messages if kind == "observation"] == [
        'error: there is no tool "nope" now; there are: add, count, crash, meet',
        "met",
        "met",
    ]
    assert "(meet) met\nObservation: (meet) met" in (llm.requests[1].prompt or "")


async def test_a_crash_is_an_observation_and_tells_nothing_of_itself(tmp_path: Path) -> None:
    llm = TurnsLlm(call("crash"), DONE)
    told = await tell(llm, tmp_path, BASE + TOOLS)
    assert ("observation", "error: the tool failed") in told.messages
    assert told.answer == "done"
    assert "secret" not in (llm.requests[1].prompt or "")


async def test_a_malformed_call_is_told_once_and_then_ends(tmp_path: Path) -> None:
    wrong = ("Thought: so\nAction: add\nAction Input: {broken\n",)
    llm = TurnsLlm(wrong, call("add", a=1), wrong, DONE)
    told = await tell(llm, tmp_path, BASE + TOOLS)
    assert told.answer == "done"
    assert "Observation: error: the arguments end in the middle" in (llm.requests[1].prompt or "")
    told = await tell(TurnsLlm(wrong), tmp_path, BASE + TOOLS)
    assert isinstance(told.error, ProtocolError)
    assert len([kind for kind, _ in told.messages if kind == "action"]) == 2


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (call("add"), 'error: the arguments do not fit the tool\'s schema: the object breaks the rule "required"'),
        (call("add", a="x"), "error: the arguments do not fit the tool's schema: a breaks"),
        (call("nope"), 'error: there is no tool "nope" now'),
        (("Thought: hm",), "This leads nowhere"),
        (('Action: {"x": 1}',), "error: the call names no tool"),
        (("",), "This leads nowhere"),
        (("Final Answer: \n",), "This leads nowhere"),
    ],
)
async def test_the_model_is_told_what_was_wrong(tmp_path: Path, turn: tuple[str, ...], words: str) -> None:
    llm = TurnsLlm(turn, DONE)
    assert (await tell(llm, tmp_path, BASE + TOOLS)).answer == "done"
    assert words in (llm.requests[1].prompt or "")


async def test_a_plain_answer_is_an_answer(tmp_path: Path) -> None:
    assert (await tell(TurnsLlm(("Paris", " it is.")), tmp_path, BASE + TOOLS)).messages == [("answer", "Paris it is.")]


async def test_a_plain_answer_streams_at_once_where_nothing_is_held_back(tmp_path: Path) -> None:
    gate = asyncio.Event()
    request = AgentRequest("q", streaming=True)
    llm = TurnsLlm(("Paris", gate, " it is."))
    live = BASE.replace("agent = {}", "agent.hold = 0")
    async with pipeline(llm, tmp_path, live) as it, it.clients["default"].stream(request) as records:
        record = await anext(records)
        assert (record.chunk_type, record.content) == ("answer", "Paris")
        gate.set()
        assert "".join([record.content or "" async for record in records]) == " it is."


async def test_an_answer_that_was_cut_says_so(tmp_path: Path) -> None:
    async with pipeline(TurnsLlm(("Final Answer: It", LlmChunk(finish_reason="length"))), tmp_path) as it:
        assert (await it.tell()).records[-1].finish_reason == "length"
        assert (await it.tell(streaming=False)).records[-1].finish_reason == "length"


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("word", ["Final Answer:", "Action: none\n"])
async def test_a_long_answer_is_whole_whatever_words_are_in_it(tmp_path: Path, word: str, streaming: bool) -> None:
    answer = f"{'It is so. ' * 30}\n{word} a heading\nand the rest."
    llm = TurnsLlm(tuple(answer))
    assert (await tell(llm, tmp_path, BASE + TOOLS, streaming=streaming)).messages == [("answer", answer)]
    assert len(llm.requests) == 1


async def test_an_edit_of_a_prompt_is_in_force_for_the_next_dialog(tmp_path: Path) -> None:
    llm = TurnsLlm(DONE)
    async with pipeline(llm, tmp_path) as it:
        await it.tell()
        own = '[prompts.templates.agent-react]\nsystem = "Ours."\nprompt = "{{ question }}!"\n'
        (tmp_path / "tg.toml").write_text(BASE + own)
        while llm.requests[-1].prompt != "q!":
            await it.tell()
        assert llm.requests[-1].system == "Ours."


SLOW_TOOL = """
from pathlib import Path
from time import sleep

HERE = Path(__file__).parent
(HERE / "opening").touch()
while not (HERE / "go").exists():
    sleep(0.005)

def wait() -> str:
    return "waited"
"""


async def test_an_edit_of_a_prompt_while_the_agent_is_opened_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_tool.py").write_text(SLOW_TOOL)
    monkeypatch.syspath_prepend(tmp_path)
    config = BASE + '[tools.slow]\nkind = "python"\noptions.function = "slow_tool:wait"\n'

    async def edit() -> None:
        try:
            await until((tmp_path / "opening").exists)
            (tmp_path / "tg.toml").write_text(config + '[prompts.templates.agent-react]\nprompt = "{{ question }}!"\n')
            await until(lambda: any(line["event"] == "config.in_force" for line in logs))
        finally:
            (tmp_path / "go").touch()

    llm = TurnsLlm(DONE)
    with capture_logs() as logs:
        async with running(edit()), pipeline(llm, tmp_path, config) as it:
            await it.tell()
    assert llm.requests[0].prompt == "q!"


async def test_thinking_apart_from_the_text_is_a_thought_of_its_own(tmp_path: Path) -> None:
    llm = TurnsLlm((LlmChunk(reasoning="hm "), LlmChunk(reasoning="so"), "Thought: a\nFinal Answer: b"))
    assert (await tell(llm, tmp_path)).messages == [("thought", "hm so"), ("thought", "a"), ("answer", "b")]


async def test_an_answer_that_goes_on_to_act_is_withdrawn(tmp_path: Path) -> None:
    long = "I say this at great length. " * 20
    llm = TurnsLlm((long, '\nAction: add\nAction Input: {"a": 1}\n'), DONE)
    told = await tell(llm, tmp_path, BASE + TOOLS)
    assert told.answer == "done"
    assert [kind for kind, _ in told.messages] == ["answer", "action", "observation", "answer"]
    llm = TurnsLlm((long, '\nAction: add\nAction Input: {"a": 1}\n'), DONE)
    assert (await tell(llm, tmp_path, BASE + TOOLS, streaming=False)).answer == "done"


async def test_a_dialog_goes_on_from_its_history(tmp_path: Path) -> None:
    llm = TurnsLlm(DONE)
    step = AgentStep("I add", "add", {"a": "2"}, "3")
    assert (await tell(llm, tmp_path, BASE + TOOLS, history=(step,))).answer == "done"
    assert 'Thought: I add\nAction: add\nAction Input: {"a":"2"}\nObservation: 3' in (llm.requests[0].prompt or "")


def limited(limit: str) -> str:
    return BASE.replace("agent = {}", "agent.limits = { " + limit + " }") + TOOLS


async def test_the_limits_end_a_dialog(tmp_path: Path) -> None:
    told = await tell(TurnsLlm(call("add", a=1)), tmp_path, limited("iterations = 3"))
    assert isinstance(told.error, TooLarge)
    assert "3 iterations" in told.error.message
    assert len([kind for kind, _ in told.messages if kind == "observation"]) == 3
    told = await tell(TurnsLlm(call("add", a=1)), tmp_path, limited("tokens = 25"))
    assert isinstance(told.error, TooLarge)
    assert "25 tokens" in told.error.message
    llm = TurnsLlm(("Thought: a", asyncio.Event()))
    told = await tell(llm, tmp_path, limited("seconds = 0.2"))
    assert isinstance(told.error, Timeout)
    assert "within 0.2 s" in told.error.message
    await asyncio.wait_for(llm.stopped.wait(), 5)


async def test_a_refusal_of_the_provider_is_no_answer(tmp_path: Path) -> None:
    llm = TurnsLlm(("Final Answer: a", LlmChunk(finish_reason="content_filter")))
    assert isinstance((await tell(llm, tmp_path)).error, ContentFilter)


@pytest.mark.parametrize("question", [None, "", " \n"])
async def test_a_request_without_a_question(tmp_path: Path, question: str | None) -> None:
    llm = TurnsLlm(DONE)
    told = await tell(llm, tmp_path, question=question)  # type: ignore[arg-type]
    assert isinstance(told.error, BadRequest)
    assert "question is missing" in told.error.message
    assert llm.requests == []


async def test_patterns_that_there_are_not(tmp_path: Path) -> None:
    async with pipeline(TurnsLlm(DONE), tmp_path) as it:
        told = await it.tell(pattern="guess")
        assert isinstance(told.error, BadRequest)
        assert "known are plan-then-execute, react, supervisor" in told.error.message
        assert isinstance((await it.tell(pattern="supervisor")).error, BadRequest)


STATES = """
[tools.log_in]
kind = "python"
options.function = "tests.fakes.tools:add"
state = "in"
[tools.buy]
kind = "python"
options.function = "tests.fakes.tools:add"
applicable_states = ["in"]
[tools.secret]
kind = "python"
options.function = "tests.fakes.tools:add"
group = ["staff"]
"""


def told_tools(llm: TurnsLlm, number: int) -> set[str]:
    return {name for name in ("log_in", "buy", "secret") if f"{name}: Adds" in (llm.requests[number].system or "")}


async def test_tools_by_group_and_state(tmp_path: Path) -> None:
    llm = TurnsLlm(call("log_in", a=1), DONE)
    async with pipeline(llm, tmp_path, BASE + STATES) as it:
        await it.tell()
        assert [told_tools(llm, number) for number in (0, 1)] == [{"log_in"}, {"log_in", "buy"}]
        await it.tell(state="in", group=("staff",))
        assert told_tools(llm, 2) == {"secret"}
        await it.tell(state="in", group=("*",))
        assert told_tools(llm, 3) == {"log_in", "buy", "secret"}
        told = await it.tell(group=())
        assert told.answer == "done"
        assert told_tools(llm, 4) == set()
        assert "Action:" not in (llm.requests[4].system or "")


async def test_a_model_that_cannot_stop_is_not_asked_to(tmp_path: Path) -> None:
    llm = TurnsLlm(
        ('Action: add\nAction Input: {"a": 1}\nObservation: 7\nFinal Answer: 7',),
        ("Final Answer: 2",),
        features=TEXT_ONLY - {"stop"},
    )
    assert (await tell(llm, tmp_path, BASE + TOOLS)).answer == "2"
    assert llm.requests[0].sampling is None


def test_what_was_withdrawn_is_no_part_of_the_answers_size() -> None:
    answer, most = AnswerText(), "x" * (MAX_ANSWER_BYTES * 2 // 3)
    for number in ("1", "2", "3"):
        answer.take(AgentResponse(chunk_type="answer", content=most, message_id=number))
        answer.take(AgentResponse(chunk_type="answer", message_id=number, end_of_message=True))
    answer.take(AgentResponse(chunk_type="answer", content="5", message_id="4"))
    last = AgentResponse(chunk_type="answer", message_id="4", end_of_message=True, end_of_dialog=True)
    answer.take(last)
    assert answer.final_text(last) == "5"
