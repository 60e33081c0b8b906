"""Calls in a stream of MLC-LLM's: the text that its documentation's example prints, however the pieces came."""

import ast
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.splittings import splittings
from tests.unit.test_openai_splits import events_of
from tg_doors.mlc.dialect import STYLE
from tg_doors.mlc.writers import SpelledCallsWriter, spell_calls
from tg_gateway.dialects.chat.writers import ChatStreamWriter
from tg_schema import TextCompletionResponse, ToolCallDelta

Record = TextCompletionResponse


@pytest.mark.parametrize(
    ("arguments", "spelled"),
    [
        ('{"location":"Pittsburgh,PA","unit":"fahrenheit"}', "f(location='Pittsburgh,PA',unit='fahrenheit')"),
        ("", "f()"),
        ('{"a":null,"b":[true,1.5],"c":{"d":"\\""}}', "f(a=None,b=[True, 1.5],c={'d': '\"'})"),
        ('{"a-b":1}', "f(**{'a-b': 1})"),
        ('{"from":"A"}', "f(**{'from': 'A'})"),
        ('{"a":', 'f({"a":)'),
    ],
)
def test_a_call_is_pythons(arguments: str, spelled: str) -> None:
    text = spell_calls([ToolCallDelta(0, "id", "f", arguments)])
    assert json.loads(text) == ast.literal_eval(text) == [spelled]


def talk(records: list[Record], choices: int = 2) -> dict[int, tuple[str, str]]:
    writer = SpelledCallsWriter(ChatStreamWriter("m", choices, style=STYLE), choices)
    told: dict[int, tuple[str, str]] = {}
    for chunk in events_of(b"".join(map(_bytes, (*map(writer.write, records), writer.end())))):
        for choice in chunk["choices"]:
            text, _ = told.get(choice["index"], ("", ""))
            assert choice["delta"].keys() <= {"role", "content"}
            told[choice["index"]] = text + choice["delta"]["content"], choice["finish_reason"]
    return told


def _bytes(output: Any) -> bytes:
    assert isinstance(output, bytes)
    return output


def _records(*, ended: bool) -> Iterator[Record]:
    yield Record(response="I ask. ")
    yield Record(index=1, response="No")
    yield Record(tool_calls=(ToolCallDelta(0, "c", "f", '{"a":'), ToolCallDelta(1, "d", "g")))
    yield Record(index=1, response=" calls.", finish_reason="stop" if ended else None)
    yield Record(tool_calls=(ToolCallDelta(1, arguments='{"b":2}'), ToolCallDelta(0, arguments="1}")))
    yield Record(finish_reason="tool_calls" if ended else None)


@pytest.mark.parametrize("ended", [True, False])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_calls_are_the_last_text_of_their_choice(ended: bool, data: st.DataObject) -> None:
    records = data.draw(splittings(list(_records(ended=ended))))
    calls = '["f(a=1)","g(b=2)"]'
    assert talk(list(records)) == {0: (f"I ask. {calls}", "tool_calls"), 1: ("No calls.", "stop")}
