"""Records -> TGI's events and bodies: byte by byte, and the same text however the records are cut and joined."""

import json
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.splittings import splittings
from tg_gateway.dialects.tgi.generation_parameters import GenerateBody, GenerationParameters
from tg_gateway.dialects.tgi.stream_writer import TokenEventWriter
from tg_gateway.dialects.tgi.timings import Timings
from tg_gateway.dialects.tgi.tokenization import PlacedTokensWriter, TokenizedChatWriter
from tg_gateway.dialects.tgi.whole_writer import GeneratedTextWriter
from tg_schema import TextCompletionResponse, TgError, Token
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import ContentFilter, ProtocolError, TooLarge, Unavailable

Record = TextCompletionResponse
LAST = Record(finish_reason="stop", in_token=3, out_token=2, end_of_stream=True)
A = Token(7, "a", -0.5)
B = Token(8, "b", -1.5, ((8, -1.5), (9, -2.0)), ("b", "c"))
HALVES = (Token(20, "\ufffd", -1.0, raw_bytes=b"\xe2\x82"), Token(21, "\ufffd", -2.0, raw_bytes=b"\xac"))
END = Token(2, "</s>", -0.1, special=True)


def body_of(**parameters: Any) -> GenerateBody:
    return GenerateBody(inputs="in ", parameters=GenerationParameters(**parameters))


def stream(records: Sequence[Record], **parameters: Any) -> list[str]:
    """The data of all events."""
    writer = TokenEventWriter(body_of(**parameters), {})
    data = b"".join(writer.write(record) for record in records) + writer.end()
    *events, rest = data.decode().split("\n\n")
    assert rest == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [event[6:] for event in events]


def whole(records: Sequence[Record], *, listed: bool = False, **parameters: Any) -> Any:
    writer = GeneratedTextWriter(body_of(**parameters), Timings(), {}, listed=listed)
    assert b"".join(writer.write(record) for record in records) == b""
    return json.loads(writer.end())


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


def test_a_filter_is_no_end() -> None:
    records = [Record(response="a", finish_reason="content_filter", end_of_stream=True)]
    for tell in (stream, whole):
        with pytest.raises(ContentFilter):
            tell(records)


def test_a_whole_answer() -> None:
    records = [
        Record(prompt_tokens=(Token(1, "i"), Token(3, "n ", -3.0))),
        Record(response="a", tokens=(A,)),
        Record(response="b€", tokens=(B, *HALVES, END)),
        msgspec.structs.replace(LAST, out_token=5, seed=9),
    ]
    assert whole(records) == {"generated_text": "ab€"}
    assert whole(records, listed=True, return_full_text=True) == [{"generated_text": "in ab€"}]
    tokens = [
        {"id": 7, "text": "a", "logprob": -0.5, "special": False},
        {"id": 8, "text": "b", "logprob": -1.5, "special": False},
        {"id": 20, "text": "", "logprob": -1.0, "special": False},
        {"id": 21, "text": "€", "logprob": -2.0, "special": False},
        {"id": 2, "text": "</s>", "logprob": -0.1, "special": True},
    ]
    details = {
        "finish_reason": "eos_token",
        "generated_tokens": 5,
        "seed": 9,
        "prefill": [{"id": 1, "text": "i", "logprob": None}, {"id": 3, "text": "n ", "logprob": -3.0}],
        "tokens": tokens,
        "top_tokens": [[], [tokens[1], {"id": 9, "text": "c", "logprob": -2.0, "special": False}], [], [], []],
    }
    answer = whole(records, decoder_input_details=True)
    assert answer == {"generated_text": "ab€", "details": details}
    assert list(answer["details"]) == [
        "finish_reason", "generated_tokens", "seed", "prefill", "tokens", "top_tokens",
    ]  # fmt: skip


@pytest.mark.parametrize("end", [(), (END,)])
@pytest.mark.parametrize("text", ["a\ufffd", "a"])
def test_a_text_that_ends_within_a_character_has_its_sign_in_the_last_token(text: str, end: tuple[Token, ...]) -> None:
    """Where the provider shows the sign; whole as streamed."""
    records = [Record(response=text, tokens=(A, HALVES[0], *end)), LAST]
    read = [json.loads(each)["token"] for each in stream(records, details=True)]
    tokens = [token for token in read if token["id"] != -1]
    assert whole(records, details=True)["details"]["tokens"] == tokens
    assert "".join(token["text"] for token in tokens if not token["special"]) == text


@pytest.mark.parametrize("end", [(), (END,)])
@pytest.mark.parametrize("text", ["a word", "a wor", "a ", "a"])
def test_a_text_that_ends_within_a_token_has_no_more_of_it_there(text: str, end: tuple[Token, ...]) -> None:
    """A stop string begins or ends there, or the token stops the answer by its id; whole as streamed."""
    records = [Record(response=text, tokens=(A, Token(30, " word"), *end)), LAST]
    read = [json.loads(each)["token"] for each in stream(records, details=True)]
    told = whole(records, details=True)["details"]["tokens"]
    assert told == [token for token in read if token["id"] != -1]
    assert "".join(token["text"] for token in told if not token["special"]) == text


def test_details_of_a_provider_that_tells_none() -> None:
    assert whole([Record(response="a", end_of_stream=True)], details=True)["details"] == {
        "finish_reason": "eos_token",
        "generated_tokens": 0,
        "seed": None,
        "prefill": [],
        "tokens": [],
    }


def test_the_best_of_several_answers() -> None:
    records = [
        Record(response="b", tokens=(B,), index=0, finish_reason="stop"),
        Record(response="a", tokens=(A,), index=2, finish_reason="length"),
        Record(response="?", index=1, finish_reason="stop"),
        Record(index=2, in_token=9, out_token=3, end_of_stream=True),
    ]
    asked: dict[str, Any] = {"best_of": 3, "do_sample": True}
    assert whole(records, **asked) == {"generated_text": "a"}
    answer = whole(records, **asked, details=True, return_full_text=True)
    details = answer["details"]
    others = details.pop("best_of_sequences")
    assert (answer["generated_text"], details["finish_reason"], details["generated_tokens"]) == ("in a", "length", 1)
    assert [other["generated_text"] for other in others] == ["in b", "in ?"]
    assert [other["generated_tokens"] for other in others] == [1, 0]
    assert [other["prefill"] for other in others] == [[], []]
    assert "top_tokens" in others[0]


@pytest.mark.parametrize("counted", [1, None])
def test_the_end_token_is_not_counted(counted: int | None) -> None:
    told = Record(response="a", tokens=(A, END), finish_reason="stop")
    last = Record(end_of_stream=True, out_token=counted)
    (final,) = [json.loads(each)["details"] for each in stream([told, last], details=True)][-1:]
    assert final["generated_tokens"] == 1
    assert whole([told, last], details=True)["details"]["generated_tokens"] == 1
    other = msgspec.structs.replace(told, index=1)
    details = whole([told, other, last], details=True, best_of=2, do_sample=True)["details"]
    assert [each["generated_tokens"] for each in (details, *details["best_of_sequences"])] == [1, 1]


@pytest.mark.parametrize("parameters", [{}, {"best_of": 2, "do_sample": True}])
def test_more_answers_than_asked_for(parameters: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        whole([Record(response="a", index=2), LAST], **parameters)
    with pytest.raises(ProtocolError):
        stream([Record(response="a", index=2), LAST])


def test_the_headers_of_a_whole_answer() -> None:
    timings = Timings()
    timings.ask("in ")
    writer = GeneratedTextWriter(body_of(), timings, {"X-Tokengrid-Ignored": "x"}, listed=False)
    for record in (Record(response="ab"), LAST):
        writer.write(record)
    writer.end()
    headers = dict(writer.headers)
    seconds = float(headers.pop("x-compute-time"))
    total = int(headers.pop("x-total-time"))
    assert seconds > 0
    assert total == int(seconds * 1000)
    assert int(headers.pop("x-validation-time")) <= total
    inference = int(headers.pop("x-inference-time"))
    assert inference + int(headers.pop("x-queue-time")) <= total
    assert abs(int(headers.pop("x-time-per-token")) - inference / 2) <= 1
    assert headers == {
        "x-compute-type": "unknown",
        "x-compute-characters": "3",
        "x-prompt-tokens": "3",
        "x-generated-tokens": "2",
        "X-Tokengrid-Ignored": "x",
    }


@pytest.mark.parametrize(("counted", "told"), [(0, "0"), (None, None)])
def test_an_answer_of_nothing_is_counted_and_an_unknown_count_is_not_told(
    counted: int | None, told: str | None
) -> None:
    writer = GeneratedTextWriter(body_of(), Timings(), {}, listed=False)
    writer.write(Record(end_of_stream=True, finish_reason="stop", out_token=counted))
    writer.end()
    assert writer.headers.get("x-generated-tokens") == told
    assert "x-time-per-token" not in writer.headers


@pytest.mark.parametrize(
    ("accepted", "first", "queue", "inference"),
    [
        pytest.param(None, 1.0, 900, 100, id="quick, after a wait"),
        pytest.param(None, 0.05, 0, 50, id="quick, at once"),
        pytest.param(2.1, 5.0, 2000, 3000, id="long, after a wait"),
        pytest.param(0.1, 5.0, 0, 5000, id="long, at once"),
    ],
)
def test_the_time_in_the_queue(
    monkeypatch: pytest.MonkeyPatch, accepted: float | None, first: float, queue: int, inference: int
) -> None:
    """`accepted` and `first` are seconds from the request to the sign of work and to the answer."""
    now = 1.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    timings = Timings()
    timings.ask("in ")
    writer = GeneratedTextWriter(body_of(), timings, {}, listed=False)
    if accepted is not None:
        now = 1.0 + accepted
        timings.begin()
    now = 1.0 + first
    writer.write(LAST)
    writer.end()
    told = [int(writer.headers[f"x-{name}-time"]) for name in ("queue", "inference")]
    # Whole milliseconds are cut off from floats.
    assert told == [pytest.approx(queue, abs=1), pytest.approx(inference, abs=1)]


def test_a_failure_is_one_event() -> None:
    writer = TokenEventWriter(body_of(), {})
    assert writer.fail(Unavailable("down")) == b'data: {"error":"down","error_type":"generation"}\n\n'
    assert writer.cut_after_failure is False


def test_a_stream_keeps_no_more_than_a_whole_answer() -> None:
    writer = TokenEventWriter(body_of(), {})
    half = Record(response="x" * (MAX_ANSWER_BYTES // 2 + 1))
    writer.write(half)
    with pytest.raises(TooLarge):
        writer.write(half)


@pytest.mark.parametrize(
    ("text", "tokens", "wanted"),
    [
        ("hé", (Token(1, "<s>", special=True), Token(5, "h"), Token(6, "é")), [("", 0, 0), ("h", 0, 1), ("é", 1, 3)]),
        ("a b", (Token(5, " a"), Token(6, " b")), [("a", 0, 1), (" b", 1, 3)]),
        ("€", HALVES, [("\ufffd", 0, 2), ("\ufffd", 2, 3)]),
        ("a", (Token(5, "z"),), [("", 0, 0)]),
        ("<s>a", (Token(1, "<s>", special=True), Token(5, "a")), [("<s>", 0, 3), ("a", 3, 4)]),
    ],
)
def test_the_places_of_tokens(text: str, tokens: tuple[Token, ...], wanted: list[tuple[str, int, int]]) -> None:
    writer = PlacedTokensWriter(text)
    writer.write(Record(ids=tuple(token.id for token in tokens), tokens=tokens, end_of_stream=True))
    found = json.loads(writer.end())
    assert [(each["text"], each["start"], each["stop"]) for each in found] == wanted
    assert [each["id"] for each in found] == [token.id for token in tokens]


def test_the_tokens_of_a_conversation() -> None:
    writer = TokenizedChatWriter()
    tokens = (END, A, *HALVES)
    writer.write(Record(ids=tuple(token.id for token in tokens), tokens=tokens, end_of_stream=True))
    answer = json.loads(writer.end())
    assert answer["templated_text"] == "</s>a€"
    assert [(each["start"], each["stop"]) for each in answer["tokenize_response"]] == [(0, 4), (4, 5), (5, 7), (7, 8)]


def test_ids_without_texts() -> None:
    writer = PlacedTokensWriter("a")
    writer.write(Record(ids=(1, 2), end_of_stream=True))
    with pytest.raises(TgError):
        writer.end()


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
