"""Any way of cutting and joining the records of an answer gives the same answer to Ollama's client, whole or in lines.

Lines are split and read as the client does, and every one is held against its models.
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from ollama import ChatResponse, GenerateResponse

from tests.unit.splittings import splittings
from tg_gateway.dialects import CompletionWriter
from tg_gateway.dialects.ollama.answer_shape import AnswerShape, ChatShape, GenerateShape
from tg_gateway.dialects.ollama.answer_writers import AnswerLineWriter, encode_answer
from tg_gateway.dialects.ollama.stopwatch import Stopwatch
from tg_schema import FinishReason, TextCompletionResponse, Token, ToolCallDelta

Record = TextCompletionResponse

TEXTS = st.text(st.sampled_from('ab"\\\n\x85\u2028é€🙂'), max_size=12)
ARGUMENTS = st.dictionaries(TEXTS, TEXTS | st.integers(-9, 9) | st.lists(TEXTS, max_size=2), max_size=2)
TOKENS = st.builds(Token, st.just(1), TEXTS, st.just(-0.5), st.just(((1, -0.5),)), st.just(("x",)))
PIECES = st.one_of(
    st.builds(Record, reasoning=TEXTS),
    st.builds(Record, response=TEXTS),
    st.builds(Record, response=TEXTS, tokens=st.lists(TOKENS, max_size=2).map(tuple)),
)


@st.composite
def answers(draw: st.DrawFn) -> list[Record]:
    """Thinking, text and tokens, then calls, piece by piece, one after the other or side by side."""
    told = draw(st.lists(PIECES, max_size=6))
    calls = draw(st.lists(ARGUMENTS, max_size=3))
    indent = draw(st.sampled_from([None, 1]))
    pieces = [
        [
            ToolCallDelta(index, "", "f"),
            *(ToolCallDelta(index, arguments=each) for each in json.dumps(call, indent=indent)),
        ]
        for index, call in enumerate(calls)
    ]
    side_by_side = draw(st.booleans())
    started = [piece.pop(0) for piece in pieces] if side_by_side else []
    told += [Record(tool_calls=(piece,)) for piece in (*started, *(each for piece in pieces for each in piece))]
    reason: FinishReason | None = draw(st.sampled_from([None, "stop", "length"]))
    counts = draw(st.tuples(st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)))
    return [*told, Record(finish_reason=reason, end_of_stream=True, in_token=counts[0], out_token=counts[1])]


def add(seen: dict[str, Any], part: dict[str, Any]) -> None:
    message = part.get("message") or {"content": part.get("response"), "thinking": part.get("thinking")}
    seen["text"] += message["content"]
    seen["thinking"] += message.get("thinking") or ""
    seen["calls"] += message.get("tool_calls") or []
    seen["logprobs"] += part.get("logprobs") or []
    for name in ("done", "done_reason", "prompt_eval_count", "eval_count"):
        seen[name] = part.get(name)


def read(shape: type[AnswerShape], records: Sequence[Record], *, whole: bool) -> dict[str, Any]:
    """What a client that adds up the parts has in the end."""
    model = ChatResponse if shape is ChatShape else GenerateResponse
    made, watch = shape("m"), Stopwatch()
    encode_whole = partial(encode_answer, shape=made, watch=watch)
    writer = CompletionWriter(encode_whole) if whole else AnswerLineWriter(made, watch)
    data = b"".join(map(writer.write, records)) + writer.end()
    seen: dict[str, Any] = {"text": "", "thinking": "", "calls": [], "logprobs": [], "done": False}
    for line in [data.decode()] if whole else data.decode().splitlines():
        assert not seen["done"], "nothing follows the last line"
        part = json.loads(line)
        model(**part)
        add(seen, part)
    return seen


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_client_sees_the_same_however_the_answer_is_split(data: st.DataObject) -> None:
    records = data.draw(answers())
    split = data.draw(splittings(records))
    seen = read(ChatShape, split, whole=False)
    assert seen["done"]
    assert seen["text"] == "".join(record.response or "" for record in records)
    assert seen == read(ChatShape, records, whole=False) == read(ChatShape, split, whole=True)
    bare = [msgspec.structs.replace(record, tool_calls=()) for record in split]
    assert read(GenerateShape, bare, whole=False) == {**seen, "calls": []} == read(GenerateShape, bare, whole=True)
