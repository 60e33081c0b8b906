"""Tool calls in a model's text: what is text, what is a call, and that it does not matter how the text is split."""

import json
import sys
from collections.abc import AsyncGenerator
from itertools import count, pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fakes.tool_templates import HERMES, LLAMA
from tg_base.llm import LlmChunk
from tg_llama.chat.chat_template import ChatTemplate
from tg_llama.chat.name_guard import NameGuard
from tg_llama.request import read_calls
from tg_llama.tools.python_call import read_python_call
from tg_llama.tools.tool_call_parser import ToolCallParser
from tg_llama.tools.tool_format import TOOL_FORMATS, ToolFormat
from tg_schema import TextCompletionRequest, Tool
from tg_schema.conversation import whole_calls

FORMATS = {form.name: form for form in TOOL_FORMATS}
SCHEMAS: dict[str, dict[str, Any]] = {
    "add": {"properties": {"a": {"type": "integer"}}},
    "ask": {"properties": {"q": {"type": "string"}, "n": {"type": ["number", "null"]}, "t": {"$ref": "#/$defs/tags"}}}
    | {"$defs": {"tags": {"type": "array"}}},
}
Read = tuple[str, list[tuple[str | None, str]]]


def read(form: ToolFormat, *pieces: str) -> Read:
    """The text and the calls, each with its name and its arguments as they were written."""
    ids = count()
    parser = ToolCallParser(form, SCHEMAS, lambda: f"call_{next(ids)}")
    told = [*(parser.feed(piece) for piece in pieces), parser.flush()]
    calls = whole_calls(delta for _, deltas in told for delta in deltas)
    assert [call.id for call in calls] == [f"call_{number}" for number in range(len(calls))]
    assert parser.begun == len(calls)
    return "".join(text for text, _ in told), [(call.name, call.arguments) for call in calls]


V3 = FORMATS["deepseek v3"]
ADD, ASK = ("add", '{"a": 1}'), ("ask", '{"q": "}\\"{"}')

DEEPSEEK = FORMATS["deepseek"]
SECTION, SEP = DEEPSEEK.begin + DEEPSEEK.item, DEEPSEEK.split
NEXT = DEEPSEEK.item_end + DEEPSEEK.item

CASES: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    ("hermes", "Just text.", "Just text.", []),
    ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', "", [ADD]),
    ("hermes", 'I add. \n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n', "I add.", [ADD]),
    (
        "hermes",
        (
            '<tool_call>{"name":"add","arguments":{"a": 1}}</tool_call>\n'
            '<tool_call>\n{"name": "ask", "arguments": {"q": "}\\"{"}}</tool_call> Done.'
        ),
        "Done.",
        [ADD, ASK],
    ),
    ("hermes", '<tool_call>{ "arguments": {"a": 1}, "name": "add"}</tool_call>', "", [("add", '{"a":1}')]),
    ("hermes", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [ADD]),
    ("hermes", '<tool_call>{"name": "add"}</tool_call>', "", [("add", "{}")]),
    ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1}, "id": "{"} ', "", [ADD]),
    ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1', "", [("add", '{"a": 1')]),
    ("hermes", "<tool_call>What is it?</tool_call>", "<tool_call>What is it?</tool_call>", []),
    ("hermes", '<tool_call>{"tool": "add"}</tool_call>', '<tool_call>{"tool": "add"}</tool_call>', []),
    ("hermes", 'a <tool_call> {"name": "add", "argu', 'a <tool_call> {"name": "add", "argu', []),
    ("hermes", "1 < 2 <tool", "1 < 2 <tool", []),
    ("hermes", "white \n", "white \n", []),
    ("mistral", '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "123456789"}]', "", [ADD]),
    (
        "mistral",
        '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}, {"name": "ask", "arguments": {"q": "}\\"{"}}] End',
        "End",
        [ADD, ASK],
    ),
    ("mistral", "[TOOL_CALLS] none", "[TOOL_CALLS] none", []),
    ("mistral", "[TOOL_CALLS] []", "[TOOL_CALLS] []", []),
    ("mistral names", '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]ask [ARGS] {"q": "}\\"{"}', "", [ADD, ASK]),
    ("mistral names", "[TOOL_CALLS]add{}", "[TOOL_CALLS]add{}", []),
    ("llama", '{"name": "add", "parameters": {"a": 1}}', "", [ADD]),
    (
        "llama",
        '\n{"name": "add", "parameters": {"a": 1}}; {"name": "ask", "parameters": {"q": "}\\"{"}}',
        "",
        [ADD, ASK],
    ),
    ("llama", '{"name": "add", "arguments": {"a": 1}}', "", [("add", '{"a":1}')]),
    ("llama", '{"name": "Anna", "parameters": {"a": 1}}', '{"name": "Anna", "parameters": {"a": 1}}', []),
    ("llama", '{"name": "Anna", "age": 5} is she.', '{"name": "Anna", "age": 5} is she.', []),
    ("llama", 'So: {"name": "add", "parameters": {}}', 'So: {"name": "add", "parameters": {}}', []),
    ("llama", "{it's a set} of (", "{it's a set} of (", []),
    (
        "hermes",
        '<tool_call>{"name": "add", "arguments": {"a": it\'s}}</tool_call> So: <tool_call>{"name": "add"}</tool_call>',
        "So:",
        [("add", '{"a": it\'s}'), ("add", "{}")],
    ),
    ("phi list", '<|tool_call|>[{"name": "add", "arguments": {"a": 1}}]<|/tool_call|>', "", [ADD]),
    (
        "kimi",
        (
            'Look. <|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1}'
            '<|tool_call_end|>\n<|tool_call_begin|> ask <|tool_call_argument_begin|> {"q": "}\\"{"} <|tool_call_end|>'
            "<|tool_calls_section_end|> End"
        ),
        "Look.End",
        [ADD, ASK],
    ),
    (
        "kimi",
        "<|tool_calls_section_begin|> none<|tool_calls_section_end|>",
        "<|tool_calls_section_begin|> none<|tool_calls_section_end|>",
        [],
    ),
    ("kimi", "<|tool_calls_section_begin|><|tool_call_", "<|tool_calls_section_begin|><|tool_call_", []),
    (
        "kimi",
        '<|tool_calls_section_begin|><|tool_call_begin|>add:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_e',
        "",
        [ADD],
    ),
    ("deepseek", f'{SECTION}add{SEP}{{"a": 1}}{NEXT}ask{SEP}{{"q": "}}\\"{{"}}{DEEPSEEK.item_end}', "", [ADD, ASK]),
    ("deepseek", f"{SECTION}{{}}", f"{SECTION}{{}}", []),
    ("deepseek", f"{SECTION}add{DEEPSEEK.item_end}", f"{SECTION}add{DEEPSEEK.item_end}", []),
    (
        "command",
        (
            '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "add", "parameters": {"a": 1}},\n'
            '    {"tool_call_id": 1, "tool_name": "ask", "parameters": {"q": "}\\"{"}}\n]<|END_ACTION|>'
        ),
        "",
        [ADD, ASK],
    ),
    ("command", '<|START_ACTION|>[{"tool_name": "add", "parameters": {"a": 1}}]<|END_ACTION|>', "", [ADD]),
    ("command", '<|START_ACTION|>[{"parameters": {"a":1}, "tool_name": "add"}]', "", [("add", '{"a":1}')]),
    ("command", '<|START_ACTION|>[{"name": "add"}]', '<|START_ACTION|>[{"name": "add"}]', []),
    (
        "deepseek v3",
        (
            f'{V3.begin}{V3.item}add\n```json\n{{"a": 1}}\n```{DEEPSEEK.item_end}\n{V3.item}ask\n```json\n'
            f'{{"q": "}}\\"{{"}}\n```{DEEPSEEK.item_end}{V3.end}'
        ),
        "",
        [ADD, ASK],
    ),
    ("deepseek v3", f'{SECTION}add{SEP}{{"a": 1}}', f'{SECTION}add{SEP}{{"a": 1}}', []),
    (
        "qwen3 coder",
        (
            "I add.\n\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\n"
            "<tool_call>\n<function=ask>\n<parameter=q>\n\n5 < 6 </p>\n\n</parameter>\n"
            "<parameter=n>\nNone\n</parameter>\n"
            '<parameter=t>["}", 1]</parameter></function></tool_call>'
        ),
        "I add.",
        [ADD, ("ask", '{"q": "\\n5 < 6 </p>\\n", "n": null, "t": ["}", 1]}')],
    ),
    ("qwen3 coder", "<tool_call><function=add></tool_call>x", "x", [("add", "{}")]),
    ("qwen3 coder", "<tool_call><function=add>\n?<parameter=a>one", "", [("add", '{"a": ')]),
    ("qwen3 coder", "<tool_call><function=ask><parameter=q>5</par", "", [("ask", '{"q": "5')]),
    (
        "qwen3 coder",
        "<tool_call><function=new><parameter=b>True</parameter><parameter=c>1, 2</parameter></function></tool_call>",
        "",
        [("new", '{"b": true, "c": "1, 2"}')],
    ),
    ("qwen3 coder", "<tool_call>none</tool_call>", "<tool_call>none</tool_call>", []),
    ("qwen3 coder", "<tool_call><function=a b>", "<tool_call><function=a b>", []),
    ("python", "[add(a=1)]", "", [ADD]),
    ("python", "\n[add( a = 1 ), ask(q='}\"{',)] Done", "Done", [ADD, ASK]),
    (
        "python",
        """[ask(q='''it's "1\\x41"''', n=-1_0.5e1, t=[True, {"k": (1, [])}, None, ("x")])]""",
        "",
        [("ask", '{"q": "it\'s \\"1A\\"", "n": -105.0, "t": [true, {"k": [1, []]}, null, "x"]}')],
    ),
    ("python", "[add()]", "", [("add", "{}")]),
    ("python", "[add(a=1)", "", [ADD]),
    ("python", "[add(a='1", "[add(a='1", []),
    ("python", "[1] says so", "[1] says so", []),
    ("python", "[more(a=1)]", "[more(a=1)]", []),
    ("python", f"[{'a' * 201}(", f"[{'a' * 201}(", []),
    ("python", f"[add{' ' * 21}(a=1)]", f"[add{' ' * 21}(a=1)]", []),
    ("python", "So: [add(a=1)]", "So: [add(a=1)]", []),
    ("granite", '<|tool_call|>[{"name": "add", "arguments": {"a": 1}}]', "", [ADD]),
    (
        "qwen3 coder",
        (
            "<tool_call><function=ask><parameter=n>1</parameter><parameter=n>2</parameter><parameter=q>a</parameter>"
            "<parameter=q>b</parameter><parameter=n>[</parameter><parameter=t>[]</parameter></function></tool_call>"
            "<tool_call><function=ask><parameter=n>3</parameter></function></tool_call>"
        ),
        "",
        [("ask", '{"n": 1, "q": "a", "t": []}'), ("ask", '{"n": 3}')],
    ),
    ("mistral names", f"[TOOL_CALLS]{'a' * 200}[ARGS]{{}}", "", [("a" * 200, "{}")]),
    ("mistral names", f"[TOOL_CALLS]{'a' * 201}[ARGS]{{}}", f"[TOOL_CALLS]{'a' * 201}[ARGS]{{}}", []),
    ("mistral names", f"[TOOL_CALLS]add{' ' * 512}[ARGS]{{}}", f"[TOOL_CALLS]add{' ' * 512}[ARGS]{{}}", []),
    ("hermes", f'<tool_call>{{"name": "{"a" * 600}", "arguments": {{"b":1}}}}', "", [("a" * 600, '{"b":1}')]),
    (
        "qwen3 coder",
        f"<tool_call><function=x><parameter={'k' * 201}>1</parameter><parameter={'k' * 200}>1</parameter></function>",
        "",
        [("x", f'{{"{"k" * 200}": 1}}')],
    ),
]


@pytest.mark.parametrize(("name", "text", "shown", "calls"), CASES)
def test_what_is_text_and_what_is_a_call(name: str, text: str, shown: str, calls: list[tuple[str, str]]) -> None:
    form = FORMATS[name]
    assert read(form, text) == (shown, calls)
    assert read(form, *text) == (shown, calls)
    for at in range(len(text)):
        assert read(form, text[:at], text[at:]) == (shown, calls)


def test_arguments_are_passed_on_while_they_are_written() -> None:
    parser = ToolCallParser(FORMATS["hermes"], {"add": {}}, lambda: "id")
    parser.feed('<tool_call>{"name": "add", "arguments": ')
    (begun, first) = parser.feed('{"a": [1')[1]
    assert (begun.id, begun.name, begun.arguments, first.arguments) == ("id", "add", "", '{"a": [1')
    ((_, (more,)), _) = parser.feed(", 2]}"), parser.feed("}")
    assert (more.index, more.id, more.arguments) == (0, None, ", 2]}")
    assert (parser.begun, parser.ended) == (1, 1)


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("hermes", '<tool_call>{"name": "'),
        ("llama", '{"name": "'),
        ("command", '<|START_ACTION|>[{"tool_call_id": "'),
        ("mistral names", "[TOOL_CALLS]"),
        ("qwen3 coder", "<tool_call><function="),
        ("qwen3 coder", "<tool_call><function=add><parameter="),
    ],
)
def test_a_name_without_an_end_is_not_looked_at_again_and_again(name: str, begin: str) -> None:
    """Each look is as long as what is held: counted is what the patterns could read."""
    parser = ToolCallParser(FORMATS[name], SCHEMAS, lambda: "id")
    looked_at = 0

    def count_work(frame: FrameType, event: str, function: Any) -> None:
        nonlocal looked_at
        if event == "c_call" and function.__name__ in {"match", "search", "finditer"}:
            looked_at += len(vars(frame.f_locals["self"]).get("_held", ""))

    parser.feed(begin)
    sys.setprofile(count_work)
    try:
        for _ in range(20_000):
            parser.feed("a")
    finally:
        sys.setprofile(None)
    assert looked_at < 200_000


@pytest.mark.parametrize(("template", "parallel", "calls"), [(LLAMA, None, 1), (HERMES, None, 2), (HERMES, False, 1)])
async def test_an_answer_ends_where_there_may_be_no_other_call(
    template: str, parallel: bool | None, calls: int
) -> None:
    known = ChatTemplate(template, {}, NameGuard(())).tools
    assert known is not None
    text = written(known.form, [("add", {"a": 1}), ("ask", {})])

    async def answer() -> AsyncGenerator[LlmChunk, None]:
        for character in text:
            yield LlmChunk(character)
        yield LlmChunk(finish_reason="stop")

    request = TextCompletionRequest(tools=(Tool("add"), Tool("ask")), parallel_tool_calls=parallel)
    chunks = [chunk async for chunk in read_calls(answer(), known, request)]
    assert len(whole_calls(call for chunk in chunks for call in chunk.tool_calls)) == calls
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["tool_calls"]
    assert "".join(chunk.text for chunk in chunks) == ""


VALUES = st.recursive(
    st.text(st.sampled_from('ab"\\{}[]<>/ é'), max_size=6) | st.integers(-9, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab}"), inner, max_size=2),
    max_leaves=4,
)
CALLS = st.lists(st.tuples(st.sampled_from(["add", "ask"]), st.dictionaries(st.just("x"), VALUES)), max_size=3)


def tags(arguments: dict[str, Any]) -> str:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    return "".join([f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in texts.items()])


def untyped(value: Any) -> Any:
    """A value between tags of which no schema says what it is: a text that could be another value is that value."""
    try:
        return json.loads(value) if isinstance(value, str) and not value.strip().startswith('"') else value
    except json.JSONDecodeError:
        return value


def written(form: ToolFormat, calls: list[tuple[str, dict[str, Any]]]) -> str:
    """The calls as a model of this format writes them."""
    if form.syntax == "tags":
        return "\n".join([f"<tool_call>\n<function={name}>\n{tags(it)}</function>\n</tool_call>" for name, it in calls])
    if form.syntax == "python":
        made = [f"{name}({', '.join([f'{key}={value!r}' for key, value in it.items()])})" for name, it in calls]
        return f"[{', '.join(made)}]" if calls else ""
    if form.item:
        made = [
            f"{form.item}{form.call_id(number, name) if form.numbered else name}{form.split}{json.dumps(arguments)}"
            for number, (name, arguments) in enumerate(calls)
        ]
        return f"{form.begin}{''.join([f'{each}{form.item_end}' for each in made])}{form.end}" if calls else ""
    if form.split:
        return "".join([f"{form.begin}{name}{form.split}{json.dumps(arguments)}" for name, arguments in calls])
    objects = [
        json.dumps({form.id_key: "0"} if form.id_key else {})[:-1]
        + (", " if form.id_key else "")
        + json.dumps({form.name_key: name, form.arguments_key: arguments})[1:]
        for name, arguments in calls
    ]
    if form.listed:
        return f"{form.begin}[{', '.join(objects)}]{form.end}" if objects else ""
    return "; ".join(objects) if not form.begin else "\n".join([f"{form.begin}\n{it}\n{form.end}" for it in objects])


@given(form=st.sampled_from(TOOL_FORMATS), calls=CALLS, cuts=st.lists(st.integers(0, 300), max_size=6))
@example(form=FORMATS["hermes"], calls=[("add", {"x": '"\\'})], cuts=[44, 45])
@settings(max_examples=200, deadline=None)
def test_any_split_reads_the_same_calls(
    form: ToolFormat, calls: list[tuple[str, dict[str, Any]]], cuts: list[int]
) -> None:
    text = ("Look. " if form.begin else "") + written(form, calls)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    shown, found = read(form, *(text[a:b] for a, b in pairwise(places)))
    assert shown == ("" if not form.begin else "Look." if calls else "Look. ")
    if form.syntax == "tags":
        calls = [(name, {key: untyped(value) for key, value in given.items()}) for name, given in calls]
    assert [(name, json.loads(arguments)) for name, arguments in found] == calls


@given(
    form=st.sampled_from(TOOL_FORMATS),
    parts=st.lists(
        st.sampled_from(
            [
                *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|tool_call|>", "x", "add", " ", "\n"),
                *("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>"),
                *("<|tool_call_end|>", "<|tool_calls_section_end|>", "<|START_ACTION|>", '"tool_call_id": "0", '),
                *("<function=", ">", "<parameter=", "</parameter>", "</function>", "(", ")", "a=", "'", "1", "ask"),
                *('{"name": "add", "arguments": ', '"parameters": {', '"', "\\", "{", "}", "[", "]", ",", ";"),
            ]
        ),
        max_size=12,
    ),
)
@example(form=FORMATS["hermes list"], parts=['<tool_call>[{"name": "add", "arguments": {}}', "</tool", "_call> x"])
@settings(max_examples=300, deadline=None)
def test_any_split_of_any_text_reads_the_same(form: ToolFormat, parts: list[str]) -> None:
    assert read(form, *parts) == read(form, "".join(parts)) == read(form, *"".join(parts))


REFUSED = [
    "1",
    "a=1 2",
    "a=b()",
    "a=1+1",
    "a=[1",
    "a=(1",
    "a=1)(",
    "a={1}",
    "a={1: 2}",
    "a=f'x'",
    "a=x",
    "a=",
    "a=1,,b=2",
    "=1",
]
REFUSED += ["a=1e999", "a='\\ud800'", "a=[1)", "a=1: 2", "a=[,1]", "**{}", "a=" + "[" * 600 + "]" * 600]


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_is_no_literal_is_no_call(arguments: str) -> None:
    assert read_python_call(f"add({arguments})") is None


@given(st.dictionaries(st.sampled_from(["a", "b_c", "d-e"]), VALUES | st.floats(allow_nan=False, allow_infinity=False)))
def test_what_python_writes_is_read(arguments: dict[str, Any]) -> None:
    text = f"add({', '.join([f'{key} = {value!r}' for key, value in arguments.items()])})"
    read_call = read_python_call(text)
    assert read_call is not None
    assert json.loads(read_call[1]) == arguments
