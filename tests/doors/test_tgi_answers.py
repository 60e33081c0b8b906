"""Records -> TGI's events: byte by byte, and the same text however the records are cut and joined."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doors.tgi_records import END, HALVES, LAST, A, B, Record, body_of, stream, whole
from tests.unit.splittings import splittings
from tg_doors.tgi.dialect import TokenEventWriter
from tg_schema import Token
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import ContentFilter, TooLarge, Unavailable


def event(index: int, token: str, tops: str = "") -> str:
    tops = f',"top_tokens":[{tops}]' if tops else ""
    return f'{{"index":{index},"token":{{{token}}},"generated_text":null,"details":null{tops}}}'


def last(index: int, text: str, details: str = "null", token: str | None = None, tops: str = "") -> str:
    token, tops = token or '"id":-1,"text":"","logprob":null,"special":true', f',"top_tokens":[{tops}]' if tops else ""
    return f'{{"index":{index},"token":{{{token}}},"generated_text":"{text}","details":{details}{tops}}}'


def described(reason: str, tokens: int = 2, seed: str = "null", length: int = 3) -> str:
    return f'{{"finish_reason":"{reason}","generated_tokens":{tokens},"seed":{seed},"input_length":{length}}}'


TOKEN_A = '"id":7,"text":"a","logprob":-0.5,"special":false'


TOKEN_B = '"id":8,"text":"b","logprob":-1.5,"special":false'


TOPS_B = '{"id":8,"text":"b","logprob":-1.5,"special":false},{"id":9,"text":"c","logprob":-2.0,"special":false}'


UNKNOWN = '"id":-1,"text":"{}","logprob":null,"special":false'


@pytest.mark.parametrize(
    ("records", "parameters", "wanted"),
    [
        # What nobody tells tokens of has none.
        (
            [Record(response="a"), Record(response='"\né'), LAST],
            {},
            [event(1, UNKNOWN.format("a")), event(2, UNKNOWN.format('\\"\\né')), last(3, 'a\\"\\né')],
        ),
        ([LAST], {"details": True}, [last(1, "", described("eos_token"))]),
        ([LAST], {"details": True, "return_full_text": True}, [last(1, "in ", described("eos_token"))]),
        # A token is an event; the last event has the text, and the details if asked for.
        (
            [Record(response="a", tokens=(A,)), Record(response="b", tokens=(B,)), LAST],
            {"details": True},
            [event(1, TOKEN_A), event(2, TOKEN_B, TOPS_B), last(3, "ab", described("eos_token"))],
        ),
        (
            [Record(response="ab", tokens=(A, B)), LAST],
            {},
            [event(1, TOKEN_A), event(2, TOKEN_B, TOPS_B), last(3, "ab")],
        ),
        ([Record(response="a", tokens=(A,)), LAST], {"return_full_text": True}, [event(1, TOKEN_A), last(2, "in a")]),
        # Where the answer has its full length its last token is the last one, unless text, or a token, follows it.
        (
            [Record(response="a", tokens=(A,)), Record(response="b", tokens=(B,)), LAST],
            {"max_new_tokens": 2},
            [event(1, TOKEN_A), last(2, "ab", token=TOKEN_B, tops=TOPS_B)],
        ),
        (
            [Record(response="", tokens=(END,)), Record(response="b", tokens=(B,)), LAST],
            {"max_new_tokens": 2},
            [
                event(1, '"id":2,"text":"</s>","logprob":-0.1,"special":true'),
                last(2, "b", token=TOKEN_B, tops=TOPS_B),
            ],
        ),
        (
            [Record(response="ab", tokens=(A, B)), LAST],
            {"max_new_tokens": 1},
            [event(1, TOKEN_A), event(2, TOKEN_B, TOPS_B), last(3, "ab")],
        ),
        (
            [Record(response="", tokens=(A,)), Record(response="a"), LAST],
            {"max_new_tokens": 1},
            [event(1, TOKEN_A.replace('"a"', '""')), event(2, UNKNOWN.format("a")), last(3, "a")],
        ),
        (
            [Record(response="a", tokens=(A,)), Record(response="", tokens=(END,)), LAST],
            {"max_new_tokens": 1},
            [event(1, TOKEN_A), last(2, "a", token='"id":2,"text":"</s>","logprob":-0.1,"special":true')],
        ),
        # The end token, where it is told, is the last one.
        (
            [Record(response="a", tokens=(A,)), Record(response="", tokens=(END,)), LAST],
            {},
            [event(1, TOKEN_A), last(2, "a", token='"id":2,"text":"</s>","logprob":-0.1,"special":true')],
        ),
        (
            [Record(response="", tokens=(END,)), Record(response="a", tokens=(A,)), LAST],
            {},
            [event(1, '"id":2,"text":"</s>","logprob":-0.1,"special":true'), event(2, TOKEN_A), last(3, "a")],
        ),
        # A character comes with the last of its tokens.
        (
            [Record(response="", tokens=HALVES[:1]), Record(response="€", tokens=HALVES[1:]), LAST],
            {},
            [
                event(1, '"id":20,"text":"","logprob":-1.0,"special":false'),
                event(2, '"id":21,"text":"€","logprob":-2.0,"special":false'),
                last(3, "€"),
            ],
        ),
        # Text that was held back for a possible stop string comes with the next token, or alone.
        (
            [Record(response="", tokens=(A,)), Record(response="ab", tokens=(B,)), LAST],
            {},
            [
                event(1, '"id":7,"text":"","logprob":-0.5,"special":false'),
                event(2, '"id":8,"text":"ab","logprob":-1.5,"special":false', TOPS_B),
                last(3, "ab"),
            ],
        ),
        (
            [Record(response="", tokens=(A,)), Record(response="a"), LAST],
            {},
            [
                event(1, '"id":7,"text":"","logprob":-0.5,"special":false'),
                event(2, UNKNOWN.format("a")),
                last(3, "a"),
            ],
        ),
    ],
)  # fmt: skip
def test_events(records: list[Record], parameters: dict[str, Any], wanted: list[str]) -> None:
    assert stream(records, **parameters) == wanted


@pytest.mark.parametrize(
    ("ending", "stop", "wanted"),
    [
        ({"finish_reason": "stop"}, (), "eos_token"),
        ({"finish_reason": None}, (), "eos_token"),
        ({"finish_reason": "tool_calls"}, (), "eos_token"),
        ({"finish_reason": "length"}, ("b",), "length"),
        ({"finish_reason": "stop", "stopped_by": "b"}, ("b",), "stop_sequence"),
        ({"finish_reason": "stop", "stopped_by": 7}, (), "stop_sequence"),
        # A provider that does not say which stop string it was has kept it.
        ({"finish_reason": "stop"}, ("x", "ab"), "stop_sequence"),
        ({"finish_reason": "stop"}, ("x",), "eos_token"),
    ],
)
def test_how_an_answer_ended(ending: dict[str, Any], stop: tuple[str, ...], wanted: str) -> None:
    records = [Record(response="ab"), msgspec.structs.replace(LAST, seed=5, **ending)]
    details = json.loads(stream(records, details=True, stop=stop)[-1])["details"]
    assert details == {"finish_reason": wanted, "generated_tokens": 2, "seed": 5, "input_length": 3}
    assert whole(records, details=True, stop=stop)["details"]["finish_reason"] == wanted


def test_the_seed_of_64_bits_is_told_as_it_was_sent() -> None:
    records = [Record(response="ab"), msgspec.structs.replace(LAST, seed=-7)]
    assert json.loads(stream(records, details=True)[-1])["details"]["seed"] == 2**64 - 7
    assert whole(records, details=True)["details"]["seed"] == 2**64 - 7


def test_a_filter_is_no_end() -> None:
    records = [Record(response="a", finish_reason="content_filter", end_of_stream=True)]
    for tell in (stream, whole):
        with pytest.raises(ContentFilter):
            tell(records)


def test_a_failure_is_one_event() -> None:
    writer = TokenEventWriter(body_of())
    assert writer.fail(Unavailable("down")) == b'data: {"error":"down","error_type":"generation"}\n\n'
    assert writer.cut_after_failure is False


def test_a_stream_keeps_no_more_than_a_whole_answer() -> None:
    writer = TokenEventWriter(body_of())
    half = Record(response="x" * (MAX_ANSWER_BYTES // 2 + 1))
    writer.write(half)
    with pytest.raises(TooLarge):
        writer.write(half)


@st.composite
def answers(draw: st.DrawFn) -> list[Record]:
    """An answer whose tokens are any cut of its bytes, told with it or not, and the end of it."""
    text = draw(st.text(st.sampled_from('ab"\\\né€🙂'), max_size=12))
    cuts = draw(st.lists(st.integers(0, len(text.encode())), max_size=6).map(sorted))
    edges = [0, *cuts, len(text.encode())]
    pieces = [text.encode()[start:stop] for start, stop in pairwise(edges)]
    records = []
    shown = b""
    for number, piece in enumerate(pieces):
        before = shown.decode(errors="ignore")
        shown += piece
        token = Token(number, piece.decode(errors="replace"), -0.5, raw_bytes=piece)
        records.append(Record(response=shown.decode(errors="ignore")[len(before) :], tokens=(token,)))
    match draw(st.sampled_from(["untold", "told", "ended"])):
        case "untold":
            records = [msgspec.structs.replace(record, tokens=()) for record in records]
        case "ended":
            records.append(Record(response="", tokens=(END,)))
    counts = draw(st.tuples(st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)))
    ended = Record(finish_reason=draw(st.sampled_from(["stop", "length"])), in_token=counts[0], out_token=counts[1])
    return [*records, msgspec.structs.replace(ended, end_of_stream=True, seed=draw(st.none() | st.integers(0, 9)))]


def seen(events: Sequence[str]) -> tuple[Any, ...]:
    """What a client has read: the text that it put together, the tokens, and the last event."""
    read = [json.loads(each) for each in events]
    assert [each["index"] for each in read] == list(range(1, len(read) + 1))
    assert [each["generated_text"] is None for each in read] == [True] * (len(read) - 1) + [False]
    text = "".join(each["token"]["text"] for each in read if not each["token"]["special"])
    tokens = [(each["token"]["id"], each["token"]["logprob"]) for each in read if each["token"]["id"] != -1]
    return text, tokens, read[-1]["generated_text"], read[-1]["token"], read[-1]["details"]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_client_sees_the_same_however_the_answer_is_split(data: st.DataObject) -> None:
    records = data.draw(answers())
    split = data.draw(splittings(records))
    told = seen(stream(split, details=True))
    assert told == seen(stream(records, details=True))
    text, tokens, generated, _, details = told
    assert text == generated
    body = whole(split, details=True)
    assert body == whole(records, details=True)
    assert body["generated_text"] == generated
    described = body["details"]
    assert [(token["id"], token["logprob"]) for token in described["tokens"]] == tokens
    if described["tokens"]:
        assert "".join(token["text"] for token in described["tokens"] if not token["special"]) == text
    same = ("finish_reason", "seed", "generated_tokens")
    assert {name: described[name] for name in same} == {name: details[name] for name in same}
