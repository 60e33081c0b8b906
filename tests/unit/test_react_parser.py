"""The ReAct parser: the same events however the text is cut, and every character of the prose exactly once."""

import os
import random
from collections.abc import Iterable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.flow.generated_turns import answering, calling, in_pieces
from tg_flow.agent.parsing.events import Event, InvalidCall, MessageEnd, ParsedCall, TextDelta
from tg_flow.agent.parsing.react_call import object_of
from tg_flow.agent.parsing.react_parser import ReactParser

DIALOGS = int(os.environ.get("TOKENGRID_DIALOGS", "500"))
SPLITS = 3
HOLD = 240


def joined(events: Iterable[Event]) -> list[Event]:
    """With the pieces of each message as one."""
    whole: list[Event] = []
    for event in events:
        before = whole[-1] if whole else None
        if isinstance(event, TextDelta) and isinstance(before, TextDelta) and event.kind == before.kind:
            whole[-1] = TextDelta(event.kind, before.text + event.text)
        else:
            whole.append(event)
    return whole


def read(pieces: Iterable[str], *, actions: bool = True, hold: int = HOLD) -> list[Event]:
    parser = ReactParser(actions=actions, hold=hold)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return joined(events + parser.end())


THINKING = TextDelta("thought", "I must  look.")
CASES: list[tuple[str, list[Event]]] = [
    (
        'Thought: I must  look.\nAction: see\nAction Input: {"a": 1}\n',
        [THINKING, MessageEnd(), ParsedCall("see", '{"a":1}')],
    ),
    ('Action: see\nAction Input: {"a": "}\\"{"}', [ParsedCall("see", '{"a":"}\\"{"}')]),
    ('Action: see\nArgs: {"a": [{"b": {}}]}\nObservation: 5\nFinal Answer: 5', [ParsedCall("see", '{"a":[{"b":{}}]}')]),
    (
        "Thought: The Action: button\nAction: I press it",
        [TextDelta("thought", "The Action: button\nAction: I press it")],
    ),
    ("Thought: I must  look.\n\nAction: now", [THINKING, MessageEnd(), ParsedCall("now")]),
    ("Action: now\nAction Input:\nObservation: x", [ParsedCall("now")]),
    ("Action: now\nAction Input: none\n", [ParsedCall("now")]),
    ("Action: `now`\n\n\n", [ParsedCall("now")]),
    ('Action:\n```json\n{"tool": "see", "arguments": {"a": 1}}\n```\n', [ParsedCall("see", '{"a":1}')]),
    ('Action: see\nAction Input:\n```json\n{"a":\n1}\n```\nObservation: 1', [ParsedCall("see", '{"a":1}')]),
    ('Action: see {"a": 1}', [ParsedCall("see", '{"a":1}')]),
    ('Action: {"name": "see", "args": "{\\"a\\": 1}"}', [ParsedCall("see", '{"a":1}')]),
    ('Action: a\nAction Input: {}\nAction: b\nAction Input: {"c": 1}\n', [ParsedCall("a"), ParsedCall("b", '{"c":1}')]),
    (
        "Action: a\nThought: and\nAction: b",
        [ParsedCall("a"), TextDelta("thought", "and"), MessageEnd(), ParsedCall("b")],
    ),
    ('Action: see\nAction Input: {"a": "x\ny"}', [ParsedCall("see", '{"a":"x\\ny"}')]),
    ("Paris.", [TextDelta("answer", "Paris.")]),
    ("  Paris.\n\nIt is nice. \n", [TextDelta("answer", "  Paris.\n\nIt is nice. \n")]),
    ("I must  look.\nAction: now", [THINKING, MessageEnd(), ParsedCall("now")]),
    ("I must  look.\nFinal Answer: 5", [THINKING, MessageEnd(), TextDelta("answer", "5")]),
    ("Thought: I must  look.\nAction: None\nFinal Answer: 5", [THINKING, MessageEnd(), TextDelta("answer", "5")]),
    ("**Thought:** I must  look.\n**Final Answer**: 5", [THINKING, MessageEnd(), TextDelta("answer", "5")]),
    ("Final Answer: a\nAction: now\nThought: b\n", [TextDelta("answer", "a\nAction: now\nThought: b\n")]),
    ("Final Answer:\n```python\nx = {\n```", [TextDelta("answer", "```python\nx = {\n```")]),
    ("Thought: a\nThought: b", [TextDelta("thought", "a"), MessageEnd(), TextDelta("thought", "b")]),
    ("Thought: a\nObservation: b", [TextDelta("thought", "a\nObservation: b")]),
    (
        "x" * HOLD + "\nAction: now",
        [TextDelta("thought", "x" * HOLD), MessageEnd(), ParsedCall("now")],
    ),
    (
        "x" * (HOLD + 1) + "\nAction: now",
        [TextDelta("answer", "x" * (HOLD + 1)), MessageEnd(), ParsedCall("now")],
    ),
    ("", []),
    (" \n ", []),
    ("Thought:", []),
]
FIVE = TextDelta("answer", "It is 5.")
FENCED: list[tuple[str, list[Event]]] = [
    ("```\nThought: I must  look.\nFinal Answer: It is 5.\n```", [THINKING, MessageEnd(), FIVE]),
    ("```\nThought: I must  look.\nFinal Answer: It is 5.\n```\n\n", [THINKING, MessageEnd(), FIVE]),
    ("```text\n\nFinal Answer: It is 5.\n```\n", [FIVE]),
    ("````markdown\nFinal Answer: It is 5.\n````\n", [FIVE]),
    ("```\nFinal Answer: It is 5.\n```\n\nAsk me more.", [TextDelta("answer", "It is 5.\n\nAsk me more.")]),
    ("```\nFinal Answer: Run\n```\nx\n```\n```", [TextDelta("answer", "Run\n```\nx\n```")]),
    ("```\nFinal Answer: Run\n```py\nx\n```\n```\n", [TextDelta("answer", "Run\n```py\nx\n```")]),
    ("```\nThought: I must  look.\n```\nFinal Answer: It is 5.", [THINKING, MessageEnd(), FIVE]),
    ('Thought: I must  look.\n```\nAction: see\nAction Input: {"a": 1}\n```\n', [*CASES[0][1]]),
    ('Thought: I must  look.\n```json\nAction: see\nAction Input: {"a": 1}```', [*CASES[0][1]]),
    ('```\nThought: I must  look.\nAction: see\nAction Input:\n```json\n{"a": 1}\n```\n```', [*CASES[0][1]]),
    ('```\nThought: I must  look.\n```json\nAction: see {"a": 1}\n```\n```\n', [*CASES[0][1]]),
    ("I must  look.\n```\nAction: now\n```\nObservation: 7", [THINKING, MessageEnd(), ParsedCall("now")]),
    ("```\nAction: now\nAction Input:\n```\n", [ParsedCall("now")]),
    ("```\nAction: now\n```\n```\nAction: see\n```\n", [ParsedCall("now"), ParsedCall("see")]),
    (
        "Thought: ls\n```sh\nls -l\n```\nAction: now",
        [TextDelta("thought", "ls\n```sh\nls -l\n```"), MessageEnd(), ParsedCall("now")],
    ),
    (
        "Thought: ls\n```sh\nls\nAction: now\n```",
        [TextDelta("thought", "ls\n```sh\nls"), MessageEnd(), ParsedCall("now")],
    ),
    ("```python\nx = 1\n```", [TextDelta("answer", "```python\nx = 1\n```")]),
    ("```\n``\n````\n", [TextDelta("answer", "```\n``\n````\n")]),
    ("Final Answer:\n```\nThought: x\n```\n", [TextDelta("answer", "```\nThought: x\n```\n")]),
]


@pytest.mark.parametrize(("text", "events"), [*CASES, *FENCED])
def test_what_a_text_says(text: str, events: list[Event]) -> None:
    assert read([text]) == events
    assert read(text) == events
    for cut in range(len(text)):
        assert read([text[:cut], text[cut:]]) == events


LONG = "y" * (HOLD + 1)


@pytest.mark.parametrize(
    "word",
    [
        "Thought:",
        "**Thought:**",
        "# Thought:",
        "**Thought**:",
        "```\nThought:",
        "Final Answer:",
        "**Final Answer:**",
        "```\nFinal Answer:",
        "Action: none\n",
        "Action: None\nFinal Answer:",
    ],
)
@pytest.mark.parametrize("hold", [0, HOLD])
def test_what_has_been_taken_for_an_answer_stays_one(word: str, hold: int) -> None:
    text = f"{LONG}\n{word} a heading\nand the rest\n"
    for pieces in ([text], text):
        assert read(pieces, actions=False, hold=hold) == [TextDelta("answer", text)]
        assert read(pieces, hold=hold) == [TextDelta("answer", text)]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("It is 5.", [FIVE]),
        ("I see.\nFinal Answer: It is 5.", [TextDelta("answer", "I see.\nFinal Answer: It is 5.")]),
        ("It is 5.\nFinal Answer:", [TextDelta("answer", "It is 5.\nFinal Answer:")]),
        ("Thought: I must  look.\nFinal Answer: It is 5.", [THINKING, MessageEnd(), FIVE]),
        ("A:\n```\nb\nFinal Answer: x\n```\n", [TextDelta("answer", "A:\n```\nb\nFinal Answer: x\n```\n")]),
        ("```\nFinal Answer: It is 5.\n```", [FIVE]),
    ],
)
def test_text_that_is_not_held_back(text: str, events: list[Event]) -> None:
    for pieces in ([text], text):
        assert read(pieces, actions=False, hold=0) == events


def test_an_answer_that_is_not_held_back_leaves_at_once() -> None:
    parser = ReactParser(actions=False, hold=0)
    assert parser.feed("I") == [TextDelta("answer", "I")]
    assert parser.feed("t is 5") == [TextDelta("answer", "t is 5")]
    assert parser.call_follows() == [MessageEnd()]
    assert parser.feed("more") == [TextDelta("thought", "more")]


@pytest.mark.parametrize(
    ("text", "tool", "words"),
    [
        ('Action: see\nAction Input: {"a": ', "see", "end in the middle"),
        ("Action: see\nAction Input: {'a': 1}", "see", "not a JSON object"),
        ("Action: see\nAction Input: Paris\n", "see", "not a JSON object"),
        ('Action: {"arguments": {}}', None, "names no tool"),
        ('Action: {"tool": "see", "arguments": [1]}', "see", "not a JSON object"),
        ('Action: see\nAction Input: {"a": NaN}', "see", "not a JSON object"),
        ("Action: see\nAction Input: " + '{"a":' * 20_000 + "1" + "}" * 20_000, "see", "not a JSON object"),
    ],
)
def test_what_is_no_call(text: str, tool: str | None, words: str) -> None:
    whole, bit_by_bit = read([text]), read(text)
    assert whole == bit_by_bit
    (event,) = whole
    assert isinstance(event, InvalidCall)
    assert event.tool == tool
    assert words in event.fault


def test_prose_leaves_at_once() -> None:
    parser = ReactParser(hold=HOLD)
    assert parser.feed("Thought: I") == [TextDelta("thought", "I")]
    assert parser.feed(" think") == [TextDelta("thought", " think")]
    assert parser.feed(" so.") == [TextDelta("thought", " so.")]
    assert parser.feed("\nFinal Answer:") == [MessageEnd()]
    assert parser.feed(" It") == [TextDelta("answer", "It")]
    assert parser.feed(" is.\nAction: x\n") == [TextDelta("answer", " is."), TextDelta("answer", "\nAction: x")]


def test_without_actions_they_are_prose() -> None:
    assert read(["Thought: a\nAction: now\nFinal Answer: b"], actions=False) == [
        TextDelta("thought", "a\nAction: now"),
        MessageEnd(),
        TextDelta("answer", "b"),
    ]


def test_a_call_outside_of_the_text_ends_the_thought() -> None:
    parser = ReactParser(actions=False, hold=HOLD)
    assert parser.feed("I look. Fin") == []
    assert parser.call_follows() == [TextDelta("thought", "I look. Fin"), MessageEnd()]
    assert parser.end() == []


SIGNS = "aA1 \n\t:{}[]\"'\\`*#.,é🙂"
MARKED = ("Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:")
FENCES = ("```", "\n```\n", "\n```", "```json\n", "\n````\n")
ALPHABET = st.sampled_from(
    [*SIGNS, *MARKED, *(f"\n{word} " for word in MARKED), *FENCES, '{"a": 1}', "see", "none", "\n\n"]
)


@settings(max_examples=600, deadline=None)
@given(
    st.lists(ALPHABET, max_size=40), st.lists(st.integers(0, 200), max_size=12), st.booleans(),
    st.sampled_from([0, 20, HOLD]),
)  # fmt: skip
def test_every_split_gives_the_same_events(words: list[str], cuts: list[int], actions: bool, hold: int) -> None:
    text = "".join(words)
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    whole = read([text], actions=actions, hold=hold)
    assert read(pieces, actions=actions, hold=hold) == whole
    assert read(text, actions=actions, hold=hold) == whole


@settings(max_examples=300, deadline=None)
@given(st.lists(ALPHABET, max_size=40), st.lists(st.integers(0, 400), max_size=12), st.sampled_from([0, 20, HOLD]))
def test_no_text_of_an_answer_disappears(words: list[str], cuts: list[int], hold: int) -> None:
    """Whatever follows what is long enough to be an answer, only a call could end it."""
    text = "y" * (hold + 1) + "".join(words)
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert read(pieces, actions=False, hold=hold) == [TextDelta("answer", text)]
    events = read(pieces, hold=hold)
    if not any(isinstance(event, ParsedCall | InvalidCall) for event in events):
        assert events == [TextDelta("answer", text)]


def said(events: list[Event]) -> list[tuple[str, str]]:
    """As messages of a dialog."""
    messages: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, TextDelta):
            messages.append((event.kind, event.text))
        elif isinstance(event, ParsedCall):
            arguments = msgspec.Raw(event.arguments.encode())
            messages.append(("action", msgspec.json.encode({"tool": event.tool, "arguments": arguments}).decode()))
        else:
            assert event == MessageEnd()
    return messages


@pytest.mark.timeout(60 + DIALOGS / 50)
def test_generated_turns_in_random_pieces() -> None:
    for seed in range(DIALOGS):
        chance = random.Random(seed)
        text, messages = chance.choice([calling, answering])(chance)
        assert said(read([text])) == messages, (seed, text)
        for _ in range(SPLITS):
            pieces = in_pieces(chance, text)
            assert said(read(pieces)) == messages, (seed, pieces)


def test_arguments_as_models_write_them() -> None:
    assert object_of('{"a": "x\ty"}') == {"a": "x\ty"}
    assert object_of("[1]") is None
    assert object_of("{" * 100_000) is None
    assert object_of('{"a": Infinity}') is None
