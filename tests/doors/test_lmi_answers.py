"""Records -> LMI's lines and bodies: byte by byte, and the same text however the records are cut and joined."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tg_doors.lmi.batch_writers import GeneratedTextsWriter, OutputsWriter
from tg_doors.lmi.output_formats import FORMATS, choose_format
from tg_doors.lmi.parameters import LmiParameters, Order
from tg_gateway.dialects import FailedRequest, Writer, join_output
from tg_schema import TextCompletionResponse, Token
from tg_schema.errors import ContentFilter, ProtocolError, Unavailable

Record = TextCompletionResponse
LAST = Record(finish_reason="stop", in_token=3, out_token=2, end_of_stream=True)
FULL = Record(finish_reason="length", in_token=3, out_token=2, end_of_stream=True)
A = Token(7, "a", -0.5)
B = Token(8, "b", -1.5, ((8, -1.5), (9, -2.0)), ("b", "c"))
HALVES = (Token(20, "\ufffd", -1.0, raw_bytes=b"\xe2\x82"), Token(21, "\ufffd", -2.0, raw_bytes=b"\xac"))
END = Token(2, "</s>", -0.1, special=True)
BOTH = [Record(response="a", tokens=(A,)), Record(response="b", tokens=(B,))]
DOWN = Unavailable("it is down")


def order_of(*, compatible: bool = False, details: bool = False, text: str = "in ", **parameters: Any) -> Order:
    return Order(text, LmiParameters(**parameters), parameters, compatible, details, "m")


def write(name: str, records: Sequence[Record], **asked: Any) -> str:
    writer = choose_format(name, {}, stream=False, events=False).make(order_of(**asked))
    return b"".join(map(join_output, [*map(writer.write, records), writer.end()])).decode()


LINE_A = '{"token":{"id":7,"text":"a","log_prob":-0.5}}\n'
LINE_B = '{"token":{"id":8,"text":"b","log_prob":-1.5}}\n'
EMPTY = '{"token":{"id":-1,"text":"","log_prob":null,"special_token":true},"generated_text":'


@pytest.mark.parametrize(
    ("records", "asked", "wanted"),
    [
        # A token is a line; the last one has the text, and the details if asked for.
        (
            [*BOTH, Record(response="", tokens=(END,)), LAST],
            {},
            LINE_A
            + LINE_B
            + '{"token":{"id":2,"text":"</s>","log_prob":-0.1,"special_token":true},"generated_text":"ab"}\n',
        ),
        (
            [*BOTH, FULL],
            {"max_new_tokens": 2, "details": True},
            LINE_A + '{"token":{"id":8,"text":"b","log_prob":-1.5},"generated_text":"ab",'
            '"details":{"finish_reason":"length","generated_tokens":2,"inputs":"in "}}\n',
        ),
        # Where nobody can tell which token is the last, a further line has the text.
        ([*BOTH, LAST], {}, LINE_A + LINE_B + EMPTY + '"ab"}\n'),
        ([LAST], {"return_full_text": True}, EMPTY + '"in "}\n'),
        (
            [Record(response='"\né'), LAST],
            {"details": True},
            '{"token":{"id":-1,"text":"\\"\\né","log_prob":null}}\n' + EMPTY + '"\\"\\né",'
            '"details":{"finish_reason":"eos_token","generated_tokens":2,"inputs":"in "}}\n',
        ),
        # By its length the answer could have ended, but its end token came.
        (
            [*BOTH, Record(response="", tokens=(END,)), LAST],
            {"max_new_tokens": 2},
            LINE_A
            + LINE_B
            + '{"token":{"id":2,"text":"</s>","log_prob":-0.1,"special_token":true},"generated_text":"ab"}\n',
        ),
        # A provider that sends more than was asked for loses nothing.
        ([*BOTH, LAST], {"max_new_tokens": 1}, LINE_A + LINE_B + EMPTY + '"ab"}\n'),
        # A character comes with the last of its tokens.
        (
            [Record(response="", tokens=HALVES[:1]), Record(response="€", tokens=HALVES[1:]), LAST],
            {},
            '{"token":{"id":20,"text":"","log_prob":-1.0}}\n{"token":{"id":21,"text":"€","log_prob":-2.0}}\n'
            + EMPTY
            + '"€"}\n',
        ),
        (
            [Record(prompt_tokens=(Token(5, "in"), Token(6, " ", -2.0))), BOTH[0], FULL],
            {"max_new_tokens": 1, "details": True, "decoder_input_details": True},
            ('{"token":{"id":7,"text":"a","log_prob":-0.5},"generated_text":"a","details":{"finish_reason":"length",'
            '"generated_tokens":2,"inputs":"in ","prefill":[{"id":5,"text":"in","log_prob":null},'
            '{"id":6,"text":" ","log_prob":-2.0}]}}\n'),
        ),
        # TGI's names.
        (
            [*BOTH, FULL],
            {"max_new_tokens": 2, "compatible": True},
            ('{"token":{"id":7,"text":"a","logprob":-0.5,"special":false}}\n'
            '{"token":{"id":8,"text":"b","logprob":-1.5,"special":false},"generated_text":"ab"}\n'),
        ),
    ],
)  # fmt: skip
def test_lines(records: list[Record], asked: dict[str, Any], wanted: str) -> None:
    assert write("jsonlines", records, **asked) == wanted
    assert write("sse", records, **asked) == "".join(f"data: {line}\n\n" for line in wanted.splitlines())


@pytest.mark.parametrize(
    ("ending", "asked", "reason"),
    [
        ({"finish_reason": "length"}, {}, "length"),
        ({"finish_reason": "stop"}, {}, "eos_token"),
        ({"finish_reason": "stop", "stopped_by": "x"}, {"stop_sequences": ("x",)}, "stop_sequence"),
        ({"finish_reason": "stop", "stopped_by": 5}, {"stop_token_ids": (5,)}, "stop_sequence"),
        ({"finish_reason": "stop"}, {"stop_sequences": ("b",), "include_stop_str_in_output": True}, "stop_sequence"),
        # Without the stop string in the text, its last letter says nothing.
        ({"finish_reason": "stop"}, {"stop_sequences": ("b",)}, "eos_token"),
        ({}, {}, "eos_token"),
    ],
)
def test_endings(ending: dict[str, Any], asked: dict[str, Any], reason: str) -> None:
    records = [*BOTH, msgspec.structs.replace(Record(end_of_stream=True), **ending)]
    line = json.loads(write("jsonlines", records, details=True, **asked).splitlines()[-1])
    whole = json.loads(write("json", records, details=True, **asked))
    assert line["details"]["finish_reason"] == whole["details"]["finish_reason"] == reason


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if name not in {"json_chat", "none"}])
def test_a_filtered_answer_is_an_error(name: str) -> None:
    if "chat" in name:
        assert '"finish_reason":"content_filter"' in write(name, [Record(finish_reason="content_filter")])
        return
    with pytest.raises(ContentFilter):
        write(name, [Record(response="a", finish_reason="content_filter", end_of_stream=True)])


@pytest.mark.parametrize(
    ("records", "asked", "wanted"),
    [
        ([*BOTH, LAST], {}, '{"generated_text":"ab"}'),
        ([*BOTH, LAST], {"return_full_text": True}, '{"generated_text":"in ab"}'),
        ([*BOTH, LAST], {"compatible": True}, '[{"generated_text":"ab"}]'),
        (
            [BOTH[0], FULL],
            {"details": True},
            (
                '{"generated_text":"a","details":{"finish_reason":"length","generated_tokens":2,"inputs":"in ",'
                '"tokens":[{"id":7,"text":"a","log_prob":-0.5}]}}'
            ),
        ),
        (
            [Record(prompt_tokens=(Token(5, "in "),)), BOTH[1], FULL],
            {"details": True, "prompt_logprobs": 0, "logprobs": 2},
            (
                '{"generated_text":"b","details":{"finish_reason":"length","generated_tokens":2,"inputs":"in ",'
                '"tokens":[{"id":8,"text":"b","log_prob":-1.5}],"prefill":[{"id":5,"text":"in ","log_prob":null}],'
                '"top_tokens":[[{"id":8,"text":"b","log_prob":-1.5},{"id":9,"text":"c","log_prob":-2.0}]]}}'
            ),
        ),
        (
            [BOTH[0], FULL],
            {"details": True, "compatible": True},
            (
                '[{"generated_text":"a","details":{"finish_reason":"length","generated_tokens":2,"inputs":"in ",'
                '"tokens":[{"id":7,"text":"a","logprob":-0.5,"special":false}]}}]'
            ),
        ),
    ],
)
def test_bodies(records: list[Record], asked: dict[str, Any], wanted: str) -> None:
    assert write("json", records, **asked) == wanted


def test_the_best_of_several() -> None:
    records = [
        Record(response="b", tokens=(Token(8, "b", -3.0),), index=0, finish_reason="stop"),
        Record(response="c", tokens=(Token(9, "c", -2.0),), index=1, finish_reason="stop"),
        Record(response="a", tokens=(Token(7, "a", -1.0),), index=2, finish_reason="stop", end_of_stream=True),
    ]
    other = (
        '{"finish_reason":"eos_token","generated_tokens":1,"tokens":[{"id":9,"text":"c","log_prob":-2.0}],'
        '"generated_text":"c"}'
    )
    wanted = (
        '{"generated_text":"a","details":{"finish_reason":"eos_token","generated_tokens":1,"inputs":"in ",'
        '"tokens":[{"id":7,"text":"a","log_prob":-1.0}],"best_of_sequences":[%s]}}'
    )
    assert write("json", records, details=True, n=2, best_of=3) == wanted % other
    assert len(json.loads(write("json", records, details=True, best_of=3))["details"]["best_of_sequences"]) == 2
    assert write("none", records, n=3, return_full_text=True) == "in a"
    counted = [*records[:2], msgspec.structs.replace(records[2], in_token=4, out_token=3)]
    assert write("3p", counted, best_of=3) == (
        '{"body":{"generation":"a","prompt_token_count":4,"generation_token_count":1,"stop_reason":"stop"},'
        '"metering":{"inputTokenCount":4,"outputTokenCount":3},"content_type":"application/json"}'
    )
    with pytest.raises(ProtocolError):
        write("json", records, details=True, n=2)


def test_the_other_formats() -> None:
    records = [*BOTH, LAST]
    assert write("none", records, return_full_text=True) == "in ab"
    assert write("3p", records) == (
        '{"body":{"generation":"ab","prompt_token_count":3,"generation_token_count":2,"stop_reason":"stop"},'
        '"metering":{"inputTokenCount":3,"outputTokenCount":2},"content_type":"application/json"}'
    )
    head = '{"body":{"generation":"%s","prompt_token_count":%s,"generation_token_count":%s,"stop_reason":%s},'
    tail = '"content_type":"application/jsonlines"}\n'
    assert write("3p_stream", [*BOTH, FULL]) == (
        head % ("a", "null", "null", "null")
        + tail
        + head % ("b", "null", "null", "null")
        + tail
        + head % ("", 3, 2, '"length"')
        + '"metering":{"inputTokenCount":3,"outputTokenCount":2},'
        + tail
    )
    whole = json.loads(write("json_chat", records))
    assert (whole["object"], whole["choices"][0]["message"]["content"]) == ("chat.completion", "ab")
    events = write("sse_chat", records).split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    lines = [json.loads(line) for line in write("jsonlines_chat", records).splitlines()]
    chunks = [json.loads(event[6:]) for event in events[:-2]]
    for line, chunk in zip(lines, chunks, strict=True):
        assert {**line, "id": ""} == {**chunk, "id": "", "created": line["created"]}
    assert "".join(line["choices"][0]["delta"].get("content", "") for line in lines) == "ab"


@pytest.mark.parametrize(
    ("name", "compatible", "wanted"),
    [
        (
            "jsonlines",
            False,
            (
                '{"token":{"id":-1,"text":"","log_prob":-1,"special_token":true,"error_msg":"it is down"},'
                '"generated_text":"","details":{"finish_reason":"error","generated_tokens":null,"inputs":null}}\n'
            ),
        ),
        (
            "sse",
            True,
            (
                'data: {"token":{"id":-1,"text":"","logprob":-1,"special":true,"error_msg":"it is down"},'
                '"generated_text":"","details":{"finish_reason":"error","generated_tokens":null,"inputs":null}}\n\n'
            ),
        ),
        (
            "3p_stream",
            False,
            (
                '{"body":{"generation":"","prompt_token_count":null,"generation_token_count":null,"stop_reason":"error"},'
                '"content_type":"application/jsonlines","error":"it is down"}\n'
            ),
        ),
        ("none", False, ""),
    ],
)
def test_a_stream_that_fails(name: str, wanted: str, *, compatible: bool) -> None:
    writer = FORMATS[name].make(order_of(compatible=compatible))
    assert join_output(writer.fail(DOWN)).decode() == wanted
    assert writer.cut_after_failure is (name == "none")
    chat = join_output(FORMATS["jsonlines_chat"].make(order_of()).fail(DOWN)).decode()
    assert (json.loads(chat)["error"]["message"], chat[-1]) == ("it is down", "\n")


def test_what_was_held_back_comes_before_the_error() -> None:
    writer = FORMATS["jsonlines"].make(order_of(max_new_tokens=1))
    assert writer.write(BOTH[0]) == b""
    assert join_output(writer.fail(DOWN)).decode().startswith(LINE_A)


ITEMS = [
    Record(response="b", index=1),
    Record(response="a", index=0, finish_reason="stop"),
    FailedRequest(2, DOWN, last=False),
    Record(response="c", index=1, finish_reason="stop", end_of_stream=True),
]


def feed(writer: Writer[Any], items: Sequence[Any]) -> str:
    return b"".join(map(join_output, [*map(writer.write, items), writer.end()])).decode()


def test_dynamic_batches() -> None:
    orders = [order_of(text=f"{number} ", return_full_text=number == 1) for number in range(3)]
    assert feed(GeneratedTextsWriter(orders), ITEMS) == (
        '[{"generated_text":"a"},{"generated_text":"1 bc"},'
        '{"code":424,"message":"invoke handler failure","error":"it is down"}]'
    )
    assert feed(OutputsWriter(orders), ITEMS) == (
        '{"outputs":["","1 b",""]}\n{"outputs":["a","",""]}\n'
        '{"outputs":["","",""],"errors":[null,null,"it is down"]}\n{"outputs":["","c",""]}\n'
    )
    assert OutputsWriter(orders).fail(DOWN).decode() == (
        '{"code":424,"message":"invoke handler failure","error":"it is down"}\n'
    )


def test_a_batch_without_any_answer_fails() -> None:
    filtered = Record(index=1, finish_reason="content_filter", end_of_stream=True)
    with pytest.raises(Unavailable, match="it is down"):
        feed(GeneratedTextsWriter([order_of(), order_of()]), [FailedRequest(0, DOWN, last=False), filtered])


PIECES = st.lists(st.text(st.characters(codec="utf-8"), max_size=3), min_size=1, max_size=8)


@settings(max_examples=60)
@given(PIECES, st.sets(st.integers(1, 40)), st.booleans(), st.booleans())
def test_any_split_is_the_same_text(pieces: list[str], cuts: set[int], compatible: bool, told: bool) -> None:
    """Tokens of one character each, cut into any records: the texts of the lines are together the text."""
    text = "".join(pieces)
    tokens = [Token(ord(each), each, -1.0) for each in text]
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    records = [
        Record(response=text[start:stop], tokens=tuple(tokens[start:stop]) if told else ())
        for start, stop in pairwise(places)
        if start < stop
    ]
    asked: dict[str, Any] = {"compatible": compatible, "details": True, "max_new_tokens": max(1, len(text))}
    lines = [json.loads(line) for line in write("jsonlines", [*records, LAST], **asked).split("\n")[:-1]]
    assert "".join(line["token"]["text"] for line in lines) == lines[-1]["generated_text"] == text
    assert [list(line) for line in lines[:-1]] == [["token"]] * (len(lines) - 1)
    if told and text:
        # However they were cut, each token has its line, and the last one has the text.
        assert [line["token"]["id"] for line in lines] == [token.id for token in tokens]
    whole = json.loads(write("json", [*records, LAST], **asked))
    assert (whole[0] if compatible else whole)["generated_text"] == text
    assert write("none", [*records, LAST]) == text
