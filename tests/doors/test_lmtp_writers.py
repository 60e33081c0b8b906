"""LMTP's writers: however an answer is split into records, the items are the same, and one of them ends the stream."""

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_doors.lmtp.buffers import MAX_BUFFERED_UNITS, Buffers
from tg_doors.lmtp.item_writers import ScoreWriter, TextWriter, TokenWriter
from tg_doors.lmtp.messages import StreamNotices, find_stream_id, split_message
from tg_doors.lmtp.prompt import BufferedPrompt, read_prompt
from tg_doors.lmtp.stream_writer import MAX_ITEMS, StreamWriter, TokenBatch
from tg_gateway.dialects import join_output
from tg_schema import FinishReason, TextCompletionResponse, Token
from tg_schema.completion import NO_TOKEN_ID
from tg_schema.errors import ProtocolError, TgError, TooLarge, Unavailable

END = Token(2, "", -0.5, special=True)


def make_token(number: int) -> Token:
    return Token(number, f"<{number}>", -number / 8, top=((number, -number / 8), (9, -2.0)))


def read(data: bytes) -> list[dict[str, Any]]:
    """The items of all messages in `data`, whose payloads are below 64 KiB."""
    items: list[dict[str, Any]] = []
    while data:
        assert data[0] == 0x81
        size, head = (data[1], 2) if data[1] < 126 else (int.from_bytes(data[2:4]), 4)
        kind, _, content = data[head : head + size].partition(b" ")
        assert kind == b"TOKEN"
        items += json.loads(content)
        data = data[head + size :]
    return items


def make_batch() -> TokenBatch:
    """It says nothing by itself: what waits is taken."""
    return TokenBatch(lambda _: None, lambda _: None)


def write(writer: StreamWriter, records: list[TextCompletionResponse]) -> list[dict[str, Any]]:
    return read(b"".join(map(join_output, [*(writer.write(record) for record in records), writer.end()])))


def write_one(writer: StreamWriter, record: TextCompletionResponse) -> list[dict[str, Any]]:
    """The items of this record."""
    return read(join_output(writer.write(record)) + writer.write_items((), last=True))


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[Token], int, list[TextCompletionResponse]]:
    """Tokens, `max_tokens`, and the records of both ends: by the model's end token, or by the limit."""
    tokens = [make_token(number) for number in draw(st.lists(st.integers(10, 99), min_size=1, max_size=12))]
    reason: FinishReason = draw(st.sampled_from(["stop", "length"]))
    if reason == "stop":
        tokens = [*tokens, END]
    most = draw(st.integers(len(tokens), 99)) if reason == "stop" else len(tokens)
    cuts = [0, *sorted(draw(st.lists(st.integers(0, len(tokens)), max_size=6))), len(tokens)]
    groups = [tuple(tokens[begin:end]) for begin, end in pairwise(cuts)]
    records = [TextCompletionResponse(response="x" * len(group), tokens=group) for group in groups]
    last = records.pop() if draw(st.booleans()) else TextCompletionResponse(response="")
    records.append(
        TextCompletionResponse(
            response=last.response, tokens=last.tokens, finish_reason=reason, end_of_stream=True, in_token=3
        )
    )
    return tokens, most, records


@given(answers())
def test_any_split_gives_the_same_items(answer: tuple[list[Token], int, list[TextCompletionResponse]]) -> None:
    tokens, most, records = answer
    items = write(TokenWriter(5, make_batch(), most, typed=False), records)
    assert [item["token"] for item in items] == [token.id for token in tokens]
    assert [item["finish_reason"] for item in items] == [None] * (len(tokens) - 1) + [records[-1].finish_reason]
    assert {item["stream_id"] for item in items} == {5}
    for item, token in zip(items, tokens, strict=True):
        assert item["logprob"] == token.logprob
        assert item["top_logprobs"] == {
            **{str(number): value for number, value in token.top},
            str(token.id): token.logprob,
        }


@given(answers())
def test_a_token_is_late_only_if_it_can_be_the_last(
    answer: tuple[list[Token], int, list[TextCompletionResponse]],
) -> None:
    _, most, records = answer
    writer, told, came = TokenWriter(5, make_batch(), most, typed=False), 0, list[Token]()
    for record in records[:-1]:
        told += len(write_one(writer, record))
        came += record.tokens
        held = bool(came) and (came[-1].special or len(came) == most)
        assert told == len(came) - held


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(1, 9))
def test_scores_in_any_records(scored: list[int], size: int) -> None:
    tokens = tuple(make_token(number) for number in scored)
    groups = [tokens[at : at + size] for at in range(0, len(tokens), size)]
    records = [
        TextCompletionResponse(tokens=group, end_of_stream=number == len(groups))
        for number, group in enumerate(groups, 1)
    ]
    items = write(ScoreWriter(1, make_batch(), len(scored), typed=False), records)
    assert [(item["token"], item["logprob"]) for item in items] == [(token.id, token.logprob) for token in tokens]
    assert [item["finish_reason"] for item in items] == [None] * (len(items) - 1) + ["stop"]
    assert not any("top_logprobs" in item for item in items)


@given(st.lists(st.text(max_size=5), max_size=6))
def test_text_is_joined_from_any_records(pieces: list[str]) -> None:
    records = [TextCompletionResponse(response=piece) for piece in pieces]
    last = TextCompletionResponse(response="", finish_reason="length", end_of_stream=True)
    items = write(TextWriter(1, make_batch(), tokens=False, typed=False), [*records, last])
    assert "".join(item["text"] for item in items) == "".join(pieces)
    assert [item["finish_reason"] for item in items] == [None] * (len(items) - 1) + ["length"]


@pytest.mark.parametrize("token", [Token(NO_TOKEN_ID, "a", -1.0), Token(3, "a"), Token(3, "a", None, top=((3, -1.0),))])
def test_nothing_is_made_up(token: Token) -> None:
    record = TextCompletionResponse(response="a", tokens=(token,))
    for writer in (
        TokenWriter(1, make_batch(), 9, typed=False),
        ScoreWriter(1, make_batch(), 2, typed=False),
        TextWriter(1, make_batch(), tokens=True, typed=False),
    ):
        with pytest.raises(ProtocolError):
            writer.write(record)


def test_an_end_without_its_token_is_an_error() -> None:
    token = TextCompletionResponse(response="a", tokens=(make_token(3),))
    errors: dict[FinishReason, type[TgError]] = {"length": TooLarge, "stop": ProtocolError}
    for reason, error in errors.items():
        writer = TokenWriter(1, make_batch(), 9, typed=False)
        assert len(write_one(writer, token)) == 1
        with pytest.raises(error):
            writer.write(TextCompletionResponse(response="", finish_reason=reason, end_of_stream=True))
    with pytest.raises(ProtocolError):
        ScoreWriter(1, make_batch(), 2, typed=False).write(
            TextCompletionResponse(tokens=(make_token(3),), end_of_stream=True)
        )


@pytest.mark.parametrize(
    ("message", "kind", "stream"),
    [
        (b'GENERATE {"stream_id": 7}', "GENERATE", 7),
        (b'SCORE {"prompt": [1, "stream_id" : 7, ', "SCORE", 7),
        (b'SCORE {"stream_id":7', "SCORE", None),
        (b'SCORE {"stream_id":"7"}', "SCORE", None),
        (b'SCORE {"stream_id":12345678901234567890123}', "SCORE", None),
        (b"\xff\xfe {}", "\ufffd\ufffd", None),
        (b"", "", None),
    ],
)
def test_what_is_known_of_a_message(message: bytes, kind: str, stream: int | None) -> None:
    told, payload = split_message(message)
    assert (told, find_stream_id(payload)) == (kind, stream)


def test_streams_that_are_ready_together_share_a_message() -> None:
    said, later = list[bytes](), list[Callable[[], None]]()
    batch = TokenBatch(said.append, later.append)
    one, other = TokenWriter(1, batch, 99, typed=False), TokenWriter(2, batch, 99, typed=False)
    record = TextCompletionResponse(response="a", tokens=(make_token(3),))
    assert one.write(record) + other.write(record) + one.write(record) == b""
    (flush,) = later
    flush()
    (message,) = said
    assert [item["stream_id"] for item in read(message)] == [1, 2, 1]
    # The end of one stream takes what waits of all, and so does its failure.
    assert other.write(record) == b""
    last = TextCompletionResponse(response="", tokens=(END,), finish_reason="stop", end_of_stream=True)
    assert [item["stream_id"] for item in read(one.write(last))] == [2, 1]
    assert other.write(record) == b""
    assert [item.get("error") for item in read(other.fail(Unavailable("gone")))] == [None, "gone"]
    flush()
    assert len(said) == 1


def test_a_message_has_a_bounded_number_of_items() -> None:
    said = list[bytes]()
    writer = TokenWriter(1, TokenBatch(said.append, lambda _: None), 10**6, typed=False)
    record = TextCompletionResponse(response="a", tokens=(make_token(3),))
    for _ in range(2 * MAX_ITEMS + 1):
        writer.write(record)
    assert len(said) == 2


def test_a_long_buffered_prompt_is_read_without_a_step_for_each_id() -> None:
    buffers = Buffers()
    buffers.append("b", tuple(range(MAX_BUFFERED_UNITS)))
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        prompt = read_prompt(BufferedPrompt("b"), "ids", buffers)
    finally:
        sys.setprofile(before)
    assert len(prompt.ids) == MAX_BUFFERED_UNITS
    assert steps < 1000


def test_a_message_has_a_bounded_number_of_alternatives() -> None:
    said = list[bytes]()
    tops = tuple((number, -1.0) for number in range(1000))
    writer = TokenWriter(1, TokenBatch(said.append, lambda _: None), 10**6, typed=False, tops=1000)
    record = TextCompletionResponse(response="a", tokens=(Token(3, "a", -1.0, top=tops),))
    for _ in range(MAX_ITEMS):
        writer.write(record)
    assert 1 < len(said) < MAX_ITEMS
    assert max(map(len, said)) < 1024 * 1024


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ("queue begin", "queued"),
        ("queue start begin start", "queued started"),
        ("load begin start", "queued loading started"),
        ("load open open start begin", "queued loading started"),
        ("queue open begin", "queued loading started"),
        # It is tried again elsewhere, where the model is yet to be opened; the client knows that it has begun.
        ("queue start open begin", "queued started"),
    ],
)
def test_what_is_told_of_a_stream_that_waits(steps: str, told: str) -> None:
    kinds: list[str] = []
    notices = StreamNotices(kinds.append)
    for step in steps.split():
        if step in {"queue", "load"}:
            notices.queue(loading=step == "load")
            assert not notices.taken
        else:
            getattr(notices, step)()
            assert notices.taken
    assert kinds == told.split()
