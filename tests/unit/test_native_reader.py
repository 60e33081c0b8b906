"""What a model with tool calls of its own says: the same events however text and calls are cut and alternate."""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.flow.generated_turns import native_calling
from tests.unit.test_react_parser import HOLD, joined, said
from tg_flow.agent.core.calling import NativeReader
from tg_flow.agent.parsing.events import Event, InvalidCall, ParsedCall
from tg_flow.agent.parsing.react_parser import ReactParser
from tg_schema import TextCompletionResponse, ToolCallDelta

DIALOGS = int(os.environ.get("TOKENGRID_DIALOGS", "500"))


def record(piece: str | ToolCallDelta) -> TextCompletionResponse:
    if isinstance(piece, str):
        return TextCompletionResponse(response=piece)
    return TextCompletionResponse(tool_calls=(piece,))


def read(pieces: list[str | ToolCallDelta]) -> list[Event]:
    reader, events = NativeReader(ReactParser(actions=False, hold=HOLD), keeps_thinking=True), list[Event]()
    for piece in pieces:
        events += reader.feed(record(piece))
    return joined(events + reader.end())


@pytest.mark.timeout(60 + DIALOGS / 50)
def test_generated_turns() -> None:
    for seed in range(DIALOGS):
        pieces, messages = native_calling(random.Random(seed))
        assert said(read(pieces)) == messages, (seed, pieces)


def signs(call: ToolCallDelta) -> list[ToolCallDelta]:
    return [ToolCallDelta(call.index, arguments=sign) for sign in call.arguments]


TEXTS = st.text('{}": a1\\\n', max_size=10)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["see", ""]), TEXTS), min_size=1, max_size=4), st.randoms())
def test_any_alternation_gives_the_same_events(calls: list[tuple[str, str]], chance: random.Random) -> None:
    whole = [ToolCallDelta(index, f"c{index}", name or None, text) for index, (name, text) in enumerate(calls)]
    left = [[ToolCallDelta(call.index, call.id, call.name), *signs(call)] for call in whole]
    pieces: list[str | ToolCallDelta] = []
    while any(left):
        pieces.append(chance.choice([call for call in left if call]).pop(0))
    assert read(pieces) == read(list(whole))
    assert read(["I look.", *pieces]) == read(["I ", "look.", *whole])


def test_a_call_is_whole_only_at_the_end_of_the_turn() -> None:
    first, second = ToolCallDelta(0, "x", "see", '{"a":1}'), ToolCallDelta(1, "y", "see")
    events = read([first, second, ToolCallDelta(0, arguments="x")])
    assert [type(event) for event in events] == [InvalidCall, ParsedCall]
