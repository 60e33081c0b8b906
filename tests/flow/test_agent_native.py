"""Agents whose model calls tools natively: a conversation, the calls as they stream, and through the real SDKs."""

import asyncio
from pathlib import Path

import pytest

from tests.fakes.plan import Plan, PlannedCall
from tests.fakes.turns_llm import TEXT_ONLY, TurnsLlm
from tests.flow.agent_dialog import BASE, Told, assert_valid, pipeline, tell
from tests.provider_matrix.case import Case, staged
from tests.provider_matrix.families import anthropic, openai
from tg_base.llm import LlmChunk
from tg_flow.agent.core.open_turn import CUT
from tg_schema import COMMON_FEATURES, AgentRequest, FinishReason, Message, TextPart, ToolCall, ToolCallDelta
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import ProtocolError, TooLarge

ADD = """
[tools.add]
kind = "python"
options.function = "tests.fakes.tools:add"
"""
LIVE = BASE.replace("agent = {}", "agent.hold = 0") + ADD
CALL = (
    ToolCallDelta(0, "c0", "add"),
    ToolCallDelta(0, arguments='{"a": '),
    ToolCallDelta(0, arguments="2}"),
)


def native(*turns: tuple[object, ...]) -> TurnsLlm:
    return TurnsLlm(*turns, features=COMMON_FEATURES)  # type: ignore[arg-type]


async def test_a_call_and_the_answer(tmp_path: Path) -> None:
    llm = native(("Thought: I must ", "add.", *CALL), ("Final Answer: It ", "is 3."))
    told = await tell(llm, tmp_path, BASE + ADD, question="How much?")
    assert told.messages == [
        ("thought", "I must add."),
        ("action", '{"tool":"add","arguments":{"a":2}}'),
        ("observation", "3"),
        ("answer", "It is 3."),
    ]
    assert (told.records[-1].in_token, told.records[-1].out_token) == (20, 7)
    first, second = llm.requests
    (tool,) = first.tools
    assert (tool.name, tool.description) == ("add", "Adds two numbers.")
    assert tool.parameters["required"] == ["a"]
    assert first.messages == (Message("user", "How much?"),)
    assert second.messages[1:] == (
        Message("assistant", "I must add.", tool_calls=(ToolCall("c0", "add", '{"a": 2}'),)),
        Message("tool", "3", tool_call_id="c0", name="add"),
    )


async def test_an_answer_without_a_word_for_it(tmp_path: Path) -> None:
    assert (await tell(native(("It is", " three.")), tmp_path, BASE + ADD)).messages == [("answer", "It is three.")]


async def test_a_long_answer_without_a_word_for_it_streams(tmp_path: Path) -> None:
    pieces = [f"word{number} " for number in range(200)]
    told = await tell(native(tuple(pieces)), tmp_path, BASE + ADD)
    assert told.messages == [("answer", "".join(pieces))]


async def test_nothing_is_held_back_where_the_agent_says_so(tmp_path: Path) -> None:
    told = await told_in_steps(tmp_path, "It", " is three.")
    assert (told.records[0].chunk_type, told.records[0].content) == ("answer", "It")
    assert told.messages == [("answer", "It is three.")]


async def told_in_steps(folder: Path, *pieces: str | LlmChunk) -> Told:
    """What an agent tells that holds nothing back, and whose model waits with each piece for the one before it."""
    steps = [asyncio.Event() for _ in pieces]
    llm = native(tuple(what for pair in zip(steps, pieces, strict=True) for what in pair))
    told, waiting = Told([]), iter(steps)
    async with (
        pipeline(llm, folder, LIVE) as it,
        it.clients["default"].stream(AgentRequest("q", streaming=True)) as records,
    ):
        next(waiting).set()
        async for record in records:
            told.records.append(record)
            if record.content and (step := next(waiting, None)) is not None:
                step.set()
    assert_valid(told)
    return told


@pytest.mark.parametrize(
    ("config", "text", "kind"),
    [
        (BASE + ADD, "I must add.", "thought"),
        (BASE + ADD, "x" * 240, "thought"),
        (BASE + ADD, "x" * 241, "answer"),
        (LIVE, "I must add.", "answer"),
    ],
)
async def test_text_before_a_call_is_a_thought_unless_it_is_long(
    tmp_path: Path, config: str, text: str, kind: str
) -> None:
    """What has been sent as the answer is taken back."""
    llm = native((text[:7], text[7:], *CALL), ("It is 3.",))
    told = await tell(llm, tmp_path, config)
    assert told.messages == [
        (kind, text),
        ("action", '{"tool":"add","arguments":{"a":2}}'),
        ("observation", "3"),
        ("answer", "It is 3."),
    ]
    assert told.answer == "It is 3."
    assert llm.requests[1].messages[1].text == text


@pytest.mark.parametrize("word", ["Thought:", "**Thought:**", "# Thought:", "Final Answer:"])
@pytest.mark.parametrize("length", [241, 300])
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_line_that_begins_with_a_word_of_ours_leaves_the_answer_whole(
    tmp_path: Path, word: str, length: int, streaming: bool
) -> None:
    answer = f"{'x' * length}\n\n{word} a heading\n\nand the rest."
    llm = native(tuple(answer))
    told = await tell(llm, tmp_path, BASE + ADD, streaming=streaming)
    assert told.messages == [("answer", answer)]
    assert len(llm.requests) == 1


async def test_thinking_in_the_middle_of_an_answer_does_not_end_it(tmp_path: Path) -> None:
    pieces = ("It is ", LlmChunk(reasoning="h"), LlmChunk(reasoning="m"), "3.", LlmChunk(reasoning="yes"))
    told = await told_in_steps(tmp_path, *pieces)
    assert told.messages == [("answer", "It is 3."), ("thought", "hm"), ("thought", "yes")]
    assert told.answer == "It is 3."


async def test_pieces_of_calls_may_alternate(tmp_path: Path) -> None:
    llm = native(
        (
            ToolCallDelta(0, "x", "add"),
            ToolCallDelta(1, "y", "add"),
            ToolCallDelta(0, arguments='{"a"'),
            ToolCallDelta(1, arguments='{"a": '),
            ToolCallDelta(0, arguments=": 1}"),
            ToolCallDelta(1, arguments="5}"),
        ),
        ("Final Answer: ok",),
    )
    told = await tell(llm, tmp_path, BASE + ADD)
    actions = [record for record in told.records if record.chunk_type == "action"]
    assert [record.arguments for record in actions] == ['{"a": 1}', '{"a": 5}']
    assert sorted(content for kind, content in told.messages if kind == "observation") == ["2", "6"]
    assert len(llm.requests) == 2


async def test_several_calls_at_once(tmp_path: Path) -> None:
    calls = (
        ToolCallDelta(0, "x", "add", '{"a": 1}'),
        ToolCallDelta(1, "y", "add", ""),
        ToolCallDelta(1, arguments='{"a": 5}'),
        ToolCallDelta(2, "z", "nope", ""),
    )
    llm = native(calls, ("Final Answer: ok",))
    told = await tell(llm, tmp_path, BASE + ADD)
    assert sorted(content for kind, content in told.messages if kind == "observation") == [
        "2",
        "6",
        'error: there is no tool "nope" now; there are: add',
    ]
    results = [message for message in llm.requests[1].messages if message.role == "tool"]
    assert [(result.tool_call_id, result.text, result.error) for result in results[:2]] == [
        ("x", "2", False),
        ("y", "6", False),
    ]
    assert (results[2].tool_call_id, results[2].error) == ("z", True)


async def test_ids_that_a_provider_repeats_are_told_apart(tmp_path: Path) -> None:
    told = await tell(native(CALL, CALL, ("Final Answer: ok",)), tmp_path, BASE + ADD)
    assert len({record.call_id for record in told.records if record.chunk_type == "action"}) == 2


async def test_a_broken_call_is_told_once_and_then_ends(tmp_path: Path) -> None:
    broken = (ToolCallDelta(0, "c0", "add", '{"a": '),)
    llm = native(broken, CALL, ("Final Answer: ok",))
    assert (await tell(llm, tmp_path, BASE + ADD)).answer == "ok"
    assert llm.requests[1].messages[1:] == (Message("user", "error: the arguments are not a JSON object; write one"),)
    assert isinstance((await tell(native(broken), tmp_path, BASE + ADD)).error, ProtocolError)


async def test_a_turn_that_is_cut_before_it_came_to_anything_is_told_so(tmp_path: Path) -> None:
    cut = (LlmChunk(reasoning="hm"), LlmChunk(finish_reason="length"))
    llm = native(cut, ("It is 3.",))
    assert (await tell(llm, tmp_path, BASE + ADD)).answer == "It is 3."
    assert llm.requests[1].messages[-1] == Message("user", CUT)
    error = (await tell(native(cut), tmp_path, BASE + ADD)).error
    assert isinstance(error, TooLarge)
    assert "token limit" in error.message


@pytest.mark.parametrize(
    ("reason", "note"), [("length", "\n(cut: the model has reached its limit of tokens)"), ("stop", "")]
)
async def test_what_a_model_gives_as_a_tool_says_that_it_is_cut(
    tmp_path: Path, reason: FinishReason, note: str
) -> None:
    ask = (ToolCallDelta(0, "c0", "ask", '{"prompt": "p"}'),)
    llm = native(ask, ("half", LlmChunk(finish_reason=reason)), ("Final Answer: ok",))
    told = await tell(llm, tmp_path, BASE + '[tools.ask]\nkind = "text-completion"\n')
    assert ("observation", f"half{note}") in told.messages


async def test_thinking_stands_apart(tmp_path: Path) -> None:
    llm = native((LlmChunk(reasoning="hm"), *CALL), ("Final Answer: ok",))
    told = await tell(llm, tmp_path, BASE + ADD)
    assert told.messages[0] == ("thought", "hm")
    assert llm.requests[1].messages[1].text == ""


async def test_what_the_provider_signed_goes_back_to_it(tmp_path: Path) -> None:
    signed = ToolCallDelta(0, "c0", "add", '{"a": 2}', "of:call")
    thought = (
        LlmChunk(reasoning="h"),
        LlmChunk(reasoning="m"),
        LlmChunk(signature="of:hm"),
        LlmChunk(signature="of:?"),
    )
    turns = ((*thought, "I must add.", signed), ("Final Answer: ok",))
    llm = TurnsLlm(*turns, features=COMMON_FEATURES | {"reasoning_turns"})
    assert (await tell(llm, tmp_path, BASE + ADD)).answer == "ok"
    assert llm.requests[1].messages[1] == Message(
        "assistant",
        (ReasoningPart("hm", "of:hm"), ReasoningPart("", "of:?"), TextPart("I must add.")),
        tool_calls=(ToolCall("c0", "add", '{"a": 2}', "of:call"),),
    )
    older = native(*turns)
    older.features -= {"reasoning_turns"}
    assert (await tell(older, tmp_path, BASE + ADD)).answer == "ok"
    assert older.requests[1].messages[1].parts == (TextPart("I must add."),)


@pytest.mark.parametrize(
    ("calling", "features", "is_native"),
    [
        ("auto", COMMON_FEATURES, True),
        ("auto", TEXT_ONLY, False),
        ("text", COMMON_FEATURES, False),
        ("native", COMMON_FEATURES, True),
    ],
)
async def test_the_way_of_calling(tmp_path: Path, calling: str, features: frozenset[str], is_native: bool) -> None:
    llm = TurnsLlm(("Final Answer: ok",), features=features)  # type: ignore[arg-type]
    config = BASE.replace("agent = {}", f'agent.calling = "{calling}"') + ADD
    assert (await tell(llm, tmp_path, config)).answer == "ok"
    assert bool(llm.requests[0].tools) == is_native


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
