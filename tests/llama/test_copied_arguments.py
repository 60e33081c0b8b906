"""What the demo model may write where it has tools: text, or a call that keeps to them, in words that it was told."""

import json
from typing import Any

import msgspec
import pytest

from tg_llama.demo_provider import Demo, DemoOptions
from tg_llama.grammar import TokenGrammars
from tg_llama.tools import TOOL_FORMATS, free_grammar, let_copy
from tg_schema import Message, Sampling, TextCompletionRequest, TextCompletionResponse, Tool, ToolCall

END = 256
BYTES = TokenGrammars([bytes([number]) for number in range(END)] + [b""], [END])
FORM = next(form for form in TOOL_FORMATS if form.name == "hermes")
AGENT = 'Answer the question with the help of the tools. Before you call tools, say what you need, with "Thought:".'
ASKED = Message("user", 'Which lines mention "Grondalox", times 12?')


def tool(name: str = "look", **properties: Any) -> Tool:
    return Tool(name, "It looks.", {"type": "object", "properties": properties, "required": list(properties)})


def takes(grammar: str, text: str) -> bool:
    """Whether `text` is a whole answer of the grammar."""
    matcher = BYTES.start(grammar)
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


def call(name: str = "look", **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def held(*turns: Message, tools: tuple[Tool, ...] = (tool(text={"type": "string"}),)) -> str:
    return free_grammar(FORM, let_copy(tools, turns))


@pytest.mark.parametrize(
    "text", ["", "Hello!\n\nA < b, and <tool is no call.", "Thought: why\n" + call(text="Grondalox")]
)
def test_an_answer_is_text_or_a_call_or_both(text: str) -> None:
    assert takes(held(ASKED), text)


@pytest.mark.parametrize(
    "text",
    [
        call("other", text="Grondalox"),
        call(),
        call(text="Grondalox") + call(text="Grondalox"),
        "<tool_call>",
        "a <tool_call> in a text",
    ],
)
def test_what_begins_like_a_call_is_one_of_a_tool(text: str) -> None:
    assert not takes(held(ASKED), text)


@pytest.mark.parametrize("said", ["Grondalox", "lines mention", "(12 * 12) + 4", "-4", "12, Grondalox."])
def test_a_text_has_words_of_questions_and_results(said: str) -> None:
    assert takes(held(ASKED, Message("tool", "4 lines found", tool_call_id="c")), call(text=said))


@pytest.mark.parametrize("said", ["", "Grondal", "Grondaloxes", "grondalox", "1212", "Grondalox mine"])
def test_a_text_has_no_other_words(said: str) -> None:
    own = Message("assistant", "", tool_calls=(ToolCall("c", "look", '{"text": "mine"}'),))
    assert not takes(held(ASKED, own, Message("assistant", "mine")), call(text=said))


@pytest.mark.parametrize("schema", [{"enum": ["km"]}, {"type": "integer"}, {"type": "string", "maxLength": 2}, True])
def test_what_a_schema_says_is_not_touched(schema: Any) -> None:
    asked = (tool(unit=schema), Tool("get_time", "The time."))
    assert let_copy(asked, [ASKED]) == asked


def test_without_words_a_text_is_any() -> None:
    assert takes(held(Message("user", "?!")), call(text="whatever"))


async def asked(request: TextCompletionRequest) -> TextCompletionResponse:
    service = await Demo.open("tinydemo", DemoOptions(tries=1, temperature=0))
    try:
        (record,) = TextCompletionResponse.join([record async for record in service.on_request(request)])
        return record
    finally:
        await service.aclose()


@pytest.mark.parametrize("seed", range(4))
async def test_a_forced_call_says_what_it_was_told_however_wild_it_is(seed: int) -> None:
    wild = Sampling(temperature=5, top_k=0, top_p=1, seed=seed, max_tokens=300)
    request = TextCompletionRequest(
        messages=(ASKED,), tools=(tool(text={"type": "string"}),), tool_choice="look", sampling=wild
    )
    answer = await asked(request)
    words = msgspec.json.decode(answer.tool_calls[0].arguments, type=dict[str, str])["text"]
    assert takes(held(ASKED), call(text=words))


async def test_tools_that_no_grammar_holds_are_still_offered() -> None:
    tools = tuple(tool(f"tool{number}", text={"type": "string"}) for number in range(65))
    answer = await asked(TextCompletionRequest(prompt="Hello!", tools=tools, sampling=Sampling(max_tokens=30)))
    assert answer.finish_reason in {"stop", "tool_calls", "length"}


@pytest.mark.parametrize(
    ("question", "name", "said"),
    [
        ("What is 2 * 21?", "calculator", {"expression": "2 * 21"}),
        ("Calculate 95 - 18", "calculator", {"expression": "95 - 18"}),
        ('Which lines mention "Ferguson"?', "search_notes", {"text": "Ferguson"}),
        ('How many lines mention "xylophone"?', "search_notes", {"text": "xylophone"}),
    ],
)
async def test_calls_with_words_it_never_saw_whatever_an_agent_says_before(
    question: str, name: str, said: dict[str, str]
) -> None:
    tools = (tool("calculator", expression={"type": "string"}), tool("search_notes", text={"type": "string"}))
    answer = await asked(TextCompletionRequest(system=AGENT, messages=(Message("user", question),), tools=tools))
    assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == [(name, said)]
