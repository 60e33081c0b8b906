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
from tg_flow.agent.parsing.events import Called, Closed, Event, Misread, Said
from tg_flow.agent.parsing.json_scanner import object_of
from tg_flow.agent.parsing.react_parser import HOLD, ReactParser

DIALOGS = int(os.environ.get("TOKENGRID_DIALOGS", "500"))
SPLITS = 3


def joined(events: Iterable[Event]) -> list[Event]:
    """With the pieces of each message as one."""
    whole: list[Event] = []
    for event in events:
        before = whole[-1] if whole else None
        if isinstance(event, Said) and isinstance(before, Said) and event.kind == before.kind:
            whole[-1] = Said(event.kind, before.text + event.text)
        else:
            whole.append(event)
    return whole


def read(pieces: Iterable[str], *, actions: bool = True, hold: int = HOLD) -> list[Event]:
    parser = ReactParser(actions=actions, hold=hold)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return joined(events + parser.end())


THINKING = Said("thought", "I must  look.")
CASES: list[tuple[str, list[Event]]] = [
    ('Thought: I must  look.\nAction: see\nAction Input: {"a": 1}\n', [THINKING, Closed(), Called("see", '{"a":1}')]),
    ('Action: see\nAction Input: {"a": "}\\"{"}', [Called("see", '{"a":"}\\"{"}')]),
    ('Action: see\nArgs: {"a": [{"b": {}}]}\nObservation: 5\nFinal Answer: 5', [Called("see", '{"a":[{"b":{}}]}')]),
    ("Thought: The Action: button\nAction: I press it", [Said("thought", "The Action: button\nAction: I press it")]),
    ("Thought: I must  look.\n\nAction: now", [THINKING, Closed(), Called("now")]),
    ("Action: now\nAction Input:\nObservation: x", [Called("now")]),
    ("Action: now\nAction Input: none\n", [Called("now")]),
    ("Action: `now`\n\n\n", [Called("now")]),
    ('Action:\n```json\n{"tool": "see", "arguments": {"a": 1}}\n```\n', [Called("see", '{"a":1}')]),
    ('Action: see\nAction Input:\n```json\n{"a":\n1}\n```\nObservation: 1', [Called("see", '{"a":1}')]),
    ('Action: see {"a": 1}', [Called("see", '{"a":1}')]),
    ('Action: {"name": "see", "args": "{\\"a\\": 1}"}', [Called("see", '{"a":1}')]),
    ('Action: a\nAction Input: {}\nAction: b\nAction Input: {"c": 1}\n', [Called("a"), Called("b", '{"c":1}')]),
    ("Action: a\nThought: and\nAction: b", [Called("a"), Said("thought", "and"), Closed(), Called("b")]),
    ('Action: see\nAction Input: {"a": "x\ny"}', [Called("see", '{"a":"x\\ny"}')]),
    ("Paris.", [Said("answer", "Paris.")]),
    ("  Paris.\n\nIt is nice. \n", [Said("answer", "  Paris.\n\nIt is nice. \n")]),
    ("I must  look.\nAction: now", [THINKING, Closed(), Called("now")]),
    ("I must  look.\nFinal Answer: 5", [THINKING, Closed(), Said("answer", "5")]),
    ("Thought: I must  look.\nAction: None\nFinal Answer: 5", [THINKING, Closed(), Said("answer", "5")]),
    ("**Thought:** I must  look.\n**Final Answer**: 5", [THINKING, Closed(), Said("answer", "5")]),
    ("Final Answer: a\nAction: now\nThought: b\n", [Said("answer", "a\nAction: now\nThought: b\n")]),
    ("Final Answer:\n```python\nx = {\n```", [Said("answer", "```python\nx = {\n```")]),
    ("Thought: a\nThought: b", [Said("thought", "a"), Closed(), Said("thought", "b")]),
    ("Thought: a\nObservation: b", [Said("thought", "a\nObservation: b")]),
    ("x" * HOLD + "\nAction: now", [Said("thought", "x" * HOLD), Closed(), Called("now")]),
    ("x" * (HOLD + 1) + "\nAction: now", [Said("answer", "x" * (HOLD + 1)), Closed(), Called("now")]),
    ("", []),
    (" \n ", []),
    ("Thought:", []),
]
FIVE = Said("answer", "It is 5.")
FENCED: list[tuple[str, list[Event]]] = [
    ("```\nThought: I must  look.\nFinal Answer: It is 5.\n```", [THINKING, Closed(), FIVE]),
    ("```\nThought: I must  look.\nFinal Answer: It is 5.\n```\n\n", [THINKING, Closed(), FIVE]),
    ("```text\n\nFinal Answer: It is 5.\n```\n", [FIVE]),
    ("````markdown\nFinal Answer: It is 5.\n````\n", [FIVE]),
    ("```\nFinal Answer: It is 5.\n```\n\nAsk me more.", [Said("answer", "It is 5.\n\nAsk me more.")]),
    ("```\nFinal Answer: Run\n```\nx\n```\n```", [Said("answer", "Run\n```\nx\n```")]),
    ("```\nFinal Answer: Run\n```py\nx\n```\n```\n", [Said("answer", "Run\n```py\nx\n```")]),
    ("```\nThought: I must  look.\n```\nFinal Answer: It is 5.", [THINKING, Closed(), FIVE]),
    ('Thought: I must  look.\n```\nAction: see\nAction Input: {"a": 1}\n```\n', [*CASES[0][1]]),
    ('Thought: I must  look.\n```json\nAction: see\nAction Input: {"a": 1}```', [*CASES[0][1]]),
    ('```\nThought: I must  look.\nAction: see\nAction Input:\n```json\n{"a": 1}\n```\n```', [*CASES[0][1]]),
    ('```\nThought: I must  look.\n```json\nAction: see {"a": 1}\n```\n```\n', [*CASES[0][1]]),
    ("I must  look.\n```\nAction: now\n```\nObservation: 7", [THINKING, Closed(), Called("now")]),
    ("```\nAction: now\nAction Input:\n```\n", [Called("now")]),
    ("```\nAction: now\n```\n```\nAction: see\n```\n", [Called("now"), Called("see")]),
    (
        "Thought: ls\n```sh\nls -l\n```\nAction: now",
        [Said("thought", "ls\n```sh\nls -l\n```"), Closed(), Called("now")],
    ),
    ("Thought: ls\n```sh\nls\nAction: now\n```", [Said("thought", "ls\n```sh\nls"), Closed(), Called("now")]),
    ("```python\nx = 1\n```", [Said("answer", "```python\nx = 1\n```")]),
    ("```\n``\n````\n", [Said("answer", "```\n``\n````\n")]),
    ("Final Answer:\n```\nThought: x\n```\n", [Said("answer", "```\nThought: x\n```\n")]),
]


@pytest.mark.parametrize(("text", "events"), [*CASES, *FENCED])
def test_what_a_text_says(text: str, events: list[Event]) -> None:
    assert read([text]) == events
    assert read(text) == events
    for cut in range(len(text)):
        assert read([text[:cut], text[cut:]]) == events


LONG = "y" * (HOLD + 1)


@pytest.mark.parametrize("word", ["Thought:", "**Thought:**", "# Thought:", "**Thought**:", "```\nThought:"])
@pytest.mark.parametrize("hold", [0, HOLD])
def test_what_has_been_taken_for_an_answer_stays_one(word: str, hold: int) -> None:
    text = f"{LONG}\n{word} a heading\nand the rest\n"
    for pieces in ([text], text):
        assert read(pieces, actions=False, hold=hold) == [Said("answer", text)]
        assert read(pieces, hold=hold) == [Said("answer", text)]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("It is 5.", [FIVE]),
        ("I see.\nFinal Answer: It is 5.", [Said("answer", "I see."), Closed(), FIVE]),
        ("It is 5.\nFinal Answer:", [FIVE]),
        ("It is 5.\nFinal Answer: \n\n", [FIVE]),
        ("Thought: I must  look.\nFinal Answer: It is 5.", [THINKING, Closed(), FIVE]),
        ("A:\n```\nb\nFinal Answer: x\n```\n", [Said("answer", "A:\n```\nb\nFinal Answer: x\n```\n")]),
        ("```\nFinal Answer: It is 5.\n```", [FIVE]),
    ],
)
def test_text_that_is_not_held_back(text: str, events: list[Event]) -> None:
    for pieces in ([text], text):
        assert read(pieces, actions=False, hold=0) == events


def test_an_answer_that_is_not_held_back_leaves_at_once() -> None:
    parser = ReactParser(actions=False, hold=0)
    assert parser.feed("I") == [Said("answer", "I")]
    assert parser.feed("t is 5") == [Said("answer", "t is 5")]
    assert parser.call_follows() == [Closed()]
    assert parser.feed("more") == [Said("thought", "more")]


@pytest.mark.parametrize(
    ("text", "tool", "words"),
    [
        ('Action: see\nAction Input: {"a": ', "see", "end in the middle"),
        ("Action: see\nAction Input: {'a': 1}", "see", "not a JSON object"),
        ("Action: see\nAction Input: Paris\n", "see", "not a JSON object"),
        ('Action: {"arguments": {}}', None, "names no tool"),
        ('Action: {"tool": "see", "arguments": [1]}', "see", "not a JSON object"),
        ('Action: see\nAction Input: {"a": NaN}', "see", "not a JSON object"),
        ("Action: see\nAction Input: " + '{"a":' * 5000 + "1" + "}" * 5000, "see", "not a JSON object"),
    ],
)
def test_what_is_no_call(text: str, tool: str | None, words: str) -> None:
    whole, bit_by_bit = read([text]), read(text)
    assert whole == bit_by_bit
    (event,) = whole
    assert isinstance(event, Misread)
    assert event.tool == tool
    assert words in event.fault


def test_prose_leaves_at_once() -> None:
    parser = ReactParser()
    assert parser.feed("Thought: I") == [Said("thought", "I")]
    assert parser.feed(" think") == [Said("thought", " think")]
    assert parser.feed(" so.") == [Said("thought", " so.")]
    assert parser.feed("\nFinal Answer:") == [Closed()]
    assert parser.feed(" It") == [Said("answer", "It")]
    assert parser.feed(" is.\nAction: x\n") == [Said("answer", " is."), Said("answer", "\nAction: x")]


def test_without_actions_they_are_prose() -> None:
    assert read(["Thought: a\nAction: now\nFinal Answer: b"], actions=False) == [
        Said("thought", "a\nAction: now"),
        Closed(),
        Said("answer", "b"),
    ]


def test_a_call_outside_of_the_text_ends_the_thought() -> None:
    parser = ReactParser(actions=False)
    assert parser.feed("I look. Fin") == []
    assert parser.call_follows() == [Said("thought", "I look. Fin"), Closed()]
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


def said(events: list[Event]) -> list[tuple[str, str]]:
    """As messages of a dialog."""
    messages = []
    for event in events:
        if isinstance(event, Said):
            messages.append((event.kind, event.text))
        elif isinstance(event, Called):
            arguments = msgspec.Raw(event.arguments.encode())
            messages.append(("action", msgspec.json.encode({"tool": event.tool, "arguments": arguments}).decode()))
        else:
            assert event == Closed()
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
