"""Any way of cutting and joining the records of an answer gives the same completion, in pieces and whole."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import Completion

from tests.unit.splittings import interleave, splittings
from tg_gateway.dialects import CompletionWriter
from tg_gateway.dialects.openai.completion_writers import CompletionStreamWriter, encode_completion
from tg_schema import FinishReason, TextCompletionResponse, Token

Record = TextCompletionResponse

ANSWERS = 3
TEXTS = st.text(st.sampled_from('ab"\\\né€🙂'), max_size=12)


@st.composite
def tokens(draw: st.DrawFn) -> Token:
    """A token of text, of a piece of a character, or a control token."""
    logprob = draw(st.none() | st.just(-0.5))
    text = draw(TEXTS)
    raw = draw(st.none() | st.sampled_from([b"\xe2", b"\x82\xac", "é".encode()]))
    if raw is not None:
        text = raw.decode("utf-8", "replace")
    tops = draw(st.sampled_from([((), ()), (((1, -0.5), (2, -1.0)), ("x", "y")), (((1, -0.5),), ())]))
    return Token(draw(st.integers(0, 2)), text, logprob, *tops, raw, draw(st.booleans()))


@st.composite
def answers(draw: st.DrawFn) -> list[Record]:
    """The records of interleaved answers: tokens of the prompt, text with or without tokens, the end of each."""
    pieces: dict[int, list[Record]] = {}
    for index in range(ANSWERS):
        prompt = tuple(draw(st.lists(tokens(), max_size=3)))
        told = [Record(index=index, prompt_tokens=prompt, response=draw(TEXTS))] if prompt else []
        said = draw(st.lists(st.tuples(TEXTS, st.lists(tokens(), max_size=2).map(tuple)), max_size=4))
        told += [Record(index=index, response=text, tokens=beside) for text, beside in said]
        reason: FinishReason | None = draw(st.sampled_from([None, "stop", "length", "content_filter"]))
        pieces[index] = [*told, Record(index=index, finish_reason=reason)]
    mixed = interleave(draw, pieces)
    counts = draw(st.sampled_from([{}, {"in_token": 3}, {"in_token": 3, "out_token": 9, "cached_token": 1}]))
    return [*mixed[:-1], msgspec.structs.replace(mixed[-1], end_of_stream=True, **counts)]


def read_stream(records: Sequence[Record]) -> dict[str, Any]:
    """What a client that adds up the chunks has in the end."""
    writer = CompletionStreamWriter("m", ANSWERS, include_usage=True)
    data = b"".join(writer.write(record) for record in records) + writer.end()
    *events, done, rest = data.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    choices = [{"text": "", "logprobs": None, "finish_reason": None} for _ in range(ANSWERS)]
    usage = None
    for event in events:
        assert event.startswith(b"data: ")
        assert b"\n" not in event
        chunk = json.loads(event[6:])
        assert chunk["object"] == "text_completion"
        assert "usage" in chunk
        usage = usage or chunk["usage"]
        for piece in chunk["choices"]:
            add_piece(choices[piece["index"]], piece)
    return {"choices": choices, "usage": usage}


def add_piece(choice: dict[str, Any], piece: dict[str, Any]) -> None:
    assert choice["finish_reason"] is None, "nothing follows the end of a choice"
    choice["text"] += piece["text"]
    choice["finish_reason"] = piece["finish_reason"]
    if piece["logprobs"] is not None:
        before = choice["logprobs"] or {name: [] for name in piece["logprobs"]}
        choice["logprobs"] = {name: before[name] + piece["logprobs"][name] for name in before}


def read_body(records: Sequence[Record]) -> dict[str, Any]:
    writer = CompletionWriter(partial(encode_completion, model="m", answers=ANSWERS))
    for record in records:
        writer.write(record)
    body: dict[str, Any] = json.loads(writer.end())
    if not any(record.prompt_tokens for record in records):
        Completion.model_validate(body, strict=True)
    assert [choice.pop("index") for choice in body["choices"]] == list(range(ANSWERS))
    return {"choices": body["choices"], "usage": body.get("usage")}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_client_sees_the_same_however_the_answers_are_split(data: st.DataObject) -> None:
    records = data.draw(answers())
    split = data.draw(splittings(records))
    seen = read_stream(split)
    assert seen == read_stream(records)
    assert seen == read_body(split) == read_body(records)
    for choice in seen["choices"]:
        lists = choice["logprobs"] or {}
        assert len({len(listed) for listed in lists.values()}) <= 1
        assert sorted(lists.get("text_offset", [])) == lists.get("text_offset", [])
