"""Any way of cutting and joining the records of an answer gives MLC-LLM's clients the same, whole or in chunks."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.splittings import splittings
from tests.unit.test_openai_splits import N, Record, answers, events_of
from tg_doors.mlc.dialect import STYLE
from tg_gateway.dialects import CompletionWriter
from tg_gateway.dialects.chat.writers import ChatStreamWriter, encode_chat
from tg_gateway.dialects.openai.completion_writers import CompletionStreamWriter

NAME = "id"


def read_chunks(records: Sequence[Record]) -> dict[int, tuple[str, str | None]]:
    """Text and reason of each choice; every chunk has what MLC's tests look for."""
    writer = ChatStreamWriter("m", N, style=STYLE, name=NAME)
    told: dict[int, tuple[str, str | None]] = {}
    for chunk in events_of(b"".join(map(writer.write, records)) + writer.end()):
        assert (chunk["id"], chunk["usage"], chunk["system_fingerprint"]) == (NAME, None, "")
        for choice in chunk["choices"]:
            assert choice["delta"]["role"] == "assistant"
            text, _ = told.get(choice["index"], ("", None))
            told[choice["index"]] = text + choice["delta"]["content"], choice["finish_reason"]
    return told


def read_body(records: Sequence[Record]) -> dict[int, tuple[str, str | None]]:
    writer = CompletionWriter(partial(encode_chat, model="m", n=N, name=NAME))
    for record in records:
        writer.write(record)
    body: dict[str, Any] = json.loads(writer.end())
    assert body["id"] == NAME
    return {each["index"]: (each["message"]["content"] or "", each["finish_reason"]) for each in body["choices"]}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_client_sees_the_same_however_the_answer_is_split(data: st.DataObject) -> None:
    records = data.draw(answers())
    split = data.draw(splittings(records))
    assert read_chunks(split) == read_chunks(records) == read_body(split)


def test_a_completion_is_openais_but_for_its_id_and_usage() -> None:
    records = [
        Record(response="a"),
        Record(response="b", index=1),
        Record(finish_reason="length", in_token=1, out_token=2),
    ]
    writer = CompletionStreamWriter("m", 2, style=STYLE, name=NAME)
    chunks = list(events_of(b"".join(map(writer.write, records)) + writer.end()))
    assert [(chunk["id"], chunk["usage"]) for chunk in chunks] == [(NAME, None)] * 4
