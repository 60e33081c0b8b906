"""Records -> TGI's whole bodies, with details, headers and the tokens of a text."""

import json
import time
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.doors.tgi_records import END, HALVES, LAST, A, B, Record, body_of, stream, whole
from tg_doors.tgi.dialect import GeneratedTextWriter
from tg_doors.tgi.timings import Timings
from tg_doors.tgi.tokenization import encode_tokenized_chat, encode_tokens
from tg_gateway.dialects import CompletionWriter
from tg_schema import TgError, Token
from tg_schema.errors import ProtocolError


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
def test_the_end_token_is_counted(counted: int | None) -> None:
    told = Record(response="a", tokens=(A, END), finish_reason="stop")
    last = Record(end_of_stream=True, out_token=counted)
    (final,) = [json.loads(each)["details"] for each in stream([told, last], details=True)][-1:]
    assert final["generated_tokens"] == 2
    assert whole([told, last], details=True)["details"]["generated_tokens"] == 2
    other = msgspec.structs.replace(told, index=1)
    details = whole([told, other, last], details=True, best_of=2, do_sample=True)["details"]
    assert [each["generated_tokens"] for each in (details, *details["best_of_sequences"])] == [2, 2]


@pytest.mark.parametrize("parameters", [{}, {"best_of": 2, "do_sample": True}])
def test_more_answers_than_asked_for(parameters: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        whole([Record(response="a", index=2), LAST], **parameters)
    with pytest.raises(ProtocolError):
        stream([Record(response="a", index=2), LAST])


def test_the_headers_of_a_whole_answer() -> None:
    timings = Timings()
    timings.ask("in ")
    writer = GeneratedTextWriter(body_of(), timings, listed=False)
    writer.headers = {"X-Tokengrid-Ignored": "x"}
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
    writer = GeneratedTextWriter(body_of(), Timings(), listed=False)
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
    writer = GeneratedTextWriter(body_of(), timings, listed=False)
    if accepted is not None:
        now = 1.0 + accepted
        timings.begin()
    now = 1.0 + first
    writer.write(LAST)
    writer.end()
    told = [int(writer.headers[f"x-{name}-time"]) for name in ("queue", "inference")]
    # Whole milliseconds are cut off from floats.
    assert told == [pytest.approx(queue, abs=1), pytest.approx(inference, abs=1)]


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
    writer = CompletionWriter(partial(encode_tokens, text=text))
    writer.write(Record(ids=tuple(token.id for token in tokens), tokens=tokens, end_of_stream=True))
    found = json.loads(writer.end())
    assert [(each["text"], each["start"], each["stop"]) for each in found] == wanted
    assert [each["id"] for each in found] == [token.id for token in tokens]


def test_the_tokens_of_a_conversation() -> None:
    writer = CompletionWriter(encode_tokenized_chat)
    tokens = (END, A, *HALVES)
    writer.write(Record(ids=tuple(token.id for token in tokens), tokens=tokens, end_of_stream=True))
    answer = json.loads(writer.end())
    assert answer["templated_text"] == "</s>a€"
    assert [(each["start"], each["stop"]) for each in answer["tokenize_response"]] == [(0, 4), (4, 5), (5, 7), (7, 8)]


def test_ids_without_texts() -> None:
    writer = CompletionWriter(partial(encode_tokens, text="a"))
    writer.write(Record(ids=(1, 2), end_of_stream=True))
    with pytest.raises(TgError):
        writer.end()
