"""Records that are cut for the events of a stream: joined they are the same, and no piece is longer than allowed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tg_schema import AgentResponse, Error, PromptResponse, TextCompletionResponse, Token, ToolCallDelta, encode
from tg_schema.pieces import cut_text
from tg_schema.tool import ToolResponse

SIZE = 64
TEXTS = st.text(st.sampled_from('ab"\\\n\x00\x1f\x7fé€🙂\u2028'), max_size=200)
MAYBE = st.none() | TEXTS
CALLS = st.lists(TEXTS, max_size=3).map(
    lambda texts: tuple(ToolCallDelta(index, f"c{index}", "see", text) for index, text in enumerate(texts))
)
TOKENS = st.lists(st.builds(Token, st.integers(0, 9), st.text(max_size=3)), max_size=20).map(tuple)
RECORDS = st.one_of(
    st.builds(
        TextCompletionResponse,
        response=MAYBE,
        reasoning=MAYBE,
        tokens=TOKENS,
        tool_calls=CALLS,
        in_token=st.none() | st.just(3),
        end_of_stream=st.booleans(),
        finish_reason=st.sampled_from([None, "length"]),
    ),
    st.builds(PromptResponse, text=MAYBE, object=MAYBE, end_of_stream=st.booleans(), out_token=st.just(2)),
    st.builds(ToolResponse, text=MAYBE, object=MAYBE, end_of_stream=st.booleans()),
    st.builds(
        AgentResponse,
        chunk_type=st.sampled_from(["thought", "action", "answer"]),
        content=TEXTS,
        end_of_message=st.booleans(),
        end_of_dialog=st.booleans(),
        message_id=st.just("m"),
        path=st.sampled_from([(), ("a",)]),
        tool=st.none() | st.just("see"),
        arguments=st.none() | TEXTS.filter(bool),
        in_token=st.none() | st.just(1),
        finish_reason=st.sampled_from([None, "stop"]),
    ),
)
Record = TextCompletionResponse | PromptResponse | ToolResponse | AgentResponse


@settings(max_examples=500, deadline=None)
@given(RECORDS)
def test_what_is_cut_is_the_same_again_when_joined(record: Record) -> None:
    pieces = record.cut(SIZE)
    assert tuple(type(record).join(pieces)) == (record,)  # type: ignore[arg-type]
    assert [piece.last for piece in pieces[:-1]] == [False] * (len(pieces) - 1)
    assert pieces[-1].last == record.last
    for piece in pieces[:-1]:
        assert not getattr(piece, "end_of_message", False)
        assert getattr(piece, "in_token", None) is None
        assert getattr(piece, "finish_reason", None) is None
    for piece in pieces:
        texts = [getattr(piece, name, None) for name in ("response", "reasoning", "text", "content", "arguments")]
        texts += [call.arguments for call in getattr(piece, "tool_calls", ())]
        assert sum(len(encode(text)) for text in texts if text) <= SIZE


@given(TEXTS, st.integers(8, 64))
def test_no_character_is_cut(text: str, size: int) -> None:
    pieces = cut_text(text, size)
    assert "".join(pieces) == text
    assert all(pieces)
    assert all(len(encode(piece)) <= size for piece in pieces)


@pytest.mark.parametrize("kind", [TextCompletionResponse, PromptResponse, ToolResponse, AgentResponse])
def test_an_error_stays_whole(kind: type[Record]) -> None:
    failed = kind.from_error(Error(type="timeout", message="x" * 500))
    assert failed.cut(SIZE) == (failed,)
