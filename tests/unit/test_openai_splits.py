"""Any way of cutting and joining the records of an answer gives the same completion to OpenAI's SDK.

Every chunk and body is held against the SDK's models, which are generated from OpenAI's published description.
"""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.unit.splittings import interleave, splittings
from tg_gateway.dialects import CompletionWriter
from tg_gateway.dialects.chat.writers import ChatStreamWriter, encode_chat
from tg_schema import TextCompletionResponse, Token, ToolCallDelta

Record = TextCompletionResponse

N = 3
TEXTS = st.text(st.sampled_from('ab"\\\né€🙂'), max_size=12)
TOKENS = st.lists(
    st.builds(Token, st.just(1), TEXTS, st.just(-0.5), st.just(((1, -0.5),)), st.just(("x",)), special=st.booleans()),
    max_size=3,
).map(tuple)


@st.composite
def answers(draw: st.DrawFn) -> list[Record]:
    """The records of up to three interleaved answers: thinking, signed or not, text, calls, then the end of each."""
    pieces = {index: draw(st.lists(one_piece(index), max_size=6)) for index in range(draw(st.integers(1, N)))}
    for index, records in pieces.items():
        number_calls(records)
        records.append(Record(index=index, finish_reason=draw(st.sampled_from(["stop", "length", "tool_calls"]))))
    told = interleave(draw, pieces)
    counts = draw(st.tuples(*(st.none() | st.integers(0, 9) for _ in range(3))))
    ended = dict(zip(("in_token", "out_token", "cached_token"), counts, strict=True))
    return [*told[:-1], msgspec.structs.replace(told[-1], end_of_stream=True, **ended)]


@st.composite
def one_piece(draw: st.DrawFn, index: int) -> Record:
    match draw(st.sampled_from(["text", "thinking", "signed", "call", "tokens"])):
        case "text":
            return Record(index=index, response=draw(TEXTS))
        case "thinking":
            return Record(index=index, reasoning=draw(TEXTS))
        case "signed":
            return Record(index=index, reasoning=draw(st.none() | TEXTS), signature=draw(TEXTS.filter(bool)))
        case "call":
            return Record(index=index, tool_calls=(ToolCallDelta(0, "", "f", draw(TEXTS)),))
        case _:
            return Record(index=index, response=draw(TEXTS), tokens=draw(TOKENS))


def number_calls(records: list[Record]) -> None:
    """Each call that begins has an index and an id of its own."""
    number = 0
    for place, record in enumerate(records):
        for call in record.tool_calls:
            named = msgspec.structs.replace(call, index=number, id=f"c{number}")
            records[place] = msgspec.structs.replace(record, tool_calls=(named,))
            number += 1


def stream(records: Sequence[Record]) -> bytes:
    writer = ChatStreamWriter("m", N, include_usage=True)
    return b"".join(writer.write(record) for record in records) + writer.end()


def events_of(data: bytes) -> Iterable[dict[str, Any]]:
    *events, done, rest = data.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    for event in events:
        assert event.startswith(b"data: ")
        assert b"\n" not in event
        yield json.loads(event[6:])


def seen_by_the_sdk(data: bytes) -> dict[str, Any]:
    """The completion that the SDK accumulates; each chunk is one that OpenAI publishes."""
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for event in events_of(data):
        state.handle_chunk(ChatCompletionChunk.model_validate(event, strict=True))
    return state.current_completion_snapshot.to_dict()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_sdk_sees_the_same_however_the_answer_is_split(data: st.DataObject) -> None:
    records = data.draw(answers())
    split = data.draw(splittings(records))
    seen = seen_by_the_sdk(stream(split))
    again = seen_by_the_sdk(stream(records))
    assert [told(choice) for choice in seen["choices"]] == [told(choice) for choice in again["choices"]]
    body = body_of(split)
    assert [told(choice) for choice in seen["choices"]] == [told(choice) for choice in body["choices"]]
    assert seen.get("usage") == again.get("usage") == body.get("usage")


def body_of(records: Sequence[Record]) -> dict[str, Any]:
    writer = CompletionWriter(partial(encode_chat, model="m", n=N))
    for record in records:
        writer.write(record)
    body: dict[str, Any] = json.loads(writer.end())
    ChatCompletion.model_validate(body, strict=True)
    return body


def told(choice: dict[str, Any]) -> dict[str, Any]:
    """What a choice says, without what the SDK adds while it accumulates."""
    message = {name: value for name, value in choice["message"].items() if value is not None and name != "parsed"}
    message["tool_calls"] = [
        {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message.get("tool_calls") or ()
    ]
    details = message.get("reasoning_details") or ()
    message["reasoning_details"] = [(detail["text"], detail["signature"]) for detail in details]
    tokens = (choice.get("logprobs") or {}).get("content") or []
    return {"message": message, "finish_reason": choice["finish_reason"], "tokens": tokens}
