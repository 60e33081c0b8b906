"""However an answer of Anthropic's door is split, its blocks are the same."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_anthropic_door_writers import END, blocks, call, said, stream
from tg_schema import TextCompletionResponse
from tg_schema.object_end import ObjectEnd

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, JSON_VALUES, max_size=3)


@given(OBJECTS, st.data())
def test_the_end_of_arguments_is_their_last_character(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    end = ObjectEnd()
    for piece in split(text[:-1], data):
        end.feed(piece)
        assert not end.reached
    end.feed(text[-1])
    assert end.reached


@given(
    st.lists(st.tuples(st.sampled_from(["thinking", "text"]), TEXTS), max_size=4),
    st.lists(OBJECTS, max_size=4),
    st.data(),
)
def test_however_an_answer_is_split_its_blocks_are_the_same(
    spoken: list[tuple[str, str]], arguments: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Text and thinking in their order, then calls whose pieces are mixed at random."""
    records = [record for kind, text in spoken for record in notify(kind, text, data)]
    calls = [
        [call(number, piece) for piece in split(json.dumps(value), data)] for number, value in enumerate(arguments)
    ]
    for number, pieces in enumerate(calls):
        pieces.insert(0, call(number, "", id=f"c{number}", name="n"))
    got = blocks(stream(*records, *mix(calls, data), END))
    assert [block for block in got if block[0] != "tool_use"] == join_equal(spoken)
    used = [block for block in got if block[0] == "tool_use"]
    assert used == [("tool_use", json.dumps(value), f"c{number}", "n") for number, value in enumerate(arguments)]


def split(text: str, data: st.DataObject) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def notify(kind: str, text: str, data: st.DataObject) -> Iterable[TextCompletionResponse]:
    field = {"thinking": "reasoning", "text": "response"}[kind]
    return [said(**{field: piece}) for piece in split(text, data)]


def mix(calls: Sequence[list[TextCompletionResponse]], data: st.DataObject) -> list[TextCompletionResponse]:
    """Each call's pieces in their order, and the calls in the order of their first pieces."""
    mixed: list[TextCompletionResponse] = []
    left = [list(pieces) for pieces in calls]
    begun = 0
    while any(left):
        ready = [number for number, pieces in enumerate(left) if pieces and number <= begun]
        number = data.draw(st.sampled_from(ready))
        mixed.append(left[number].pop(0))
        begun = max(begun, number + 1)
    return mixed


def join_equal(spoken: list[tuple[str, str]]) -> list[tuple[str, ...]]:
    joined: list[tuple[str, str]] = []
    for kind, text in spoken:
        if not text:
            continue
        if joined and joined[-1][0] == kind:
            joined[-1] = (kind, joined[-1][1] + text)
        else:
            joined.append((kind, text))
    return list(joined)
