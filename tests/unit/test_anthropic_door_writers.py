"""Records of an answer -> what Anthropic's clients read: the bytes of each event, and the order of blocks."""

import json
import re
from functools import partial
from typing import Any

import pytest
from anthropic.types import Message as PublishedMessage
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from tg_gateway.dialects import CompletionWriter
from tg_gateway.dialects.anthropic.block_sequence import BLOCK_CHARACTERS, MAX_WAITING_CHARACTERS
from tg_gateway.dialects.anthropic.writers import StreamWriter, encode_count, encode_message
from tg_schema import TextCompletionResponse, ToolCallDelta
from tg_schema.conversation import MAX_CALL_INDEX
from tg_schema.errors import ProtocolError, RateLimited, TooLarge, Unavailable
from tg_schema.pieces import MAX_EVENT_BYTES

EVENT = re.compile(rb"event: ([a-z_]+)\ndata: (.*)\n\n")
PUBLISHED: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
END = TextCompletionResponse(in_token=9, out_token=4, finish_reason="stop", end_of_stream=True)


def said(**fields: Any) -> TextCompletionResponse:
    return TextCompletionResponse(**fields)


def call(index: int, arguments: str, **begun: str) -> TextCompletionResponse:
    return said(tool_calls=(ToolCallDelta(index, arguments=arguments, **begun),))


def stream(*records: TextCompletionResponse) -> bytes:
    writer = StreamWriter("m", "r")
    return b"".join(writer.write(record) for record in records) + writer.end()


def events(data: bytes) -> list[dict[str, Any]]:
    """The events; each has the name of its type, and nothing stands between them."""
    found = EVENT.findall(data)
    assert b"".join(b"event: %b\ndata: %b\n\n" % event for event in found) == data
    decoded = [json.loads(body) for _, body in found]
    assert [event["type"].encode() for event in decoded] == [name for name, _ in found]
    for event in decoded:
        PUBLISHED.validate_python(event)
    return decoded


def blocks(data: bytes) -> list[tuple[str, ...]]:
    """Type, text and further facts of each block; at any time one is open at most, and the numbers have no gap."""
    got: list[list[str]] = []
    is_open = False
    for event in events(data):
        match event["type"]:
            case "content_block_start":
                assert (is_open, event["index"]) == (False, len(got))
                begun = event["content_block"]
                got.append([begun["type"], "", *([begun["id"], begun["name"]] if begun["type"] == "tool_use" else [])])
                is_open = True
            case "content_block_delta":
                assert (is_open, event["index"]) == (True, len(got) - 1)
                delta = event["delta"]
                if delta["type"] == "signature_delta":
                    got[-1].append(delta["signature"])
                else:
                    got[-1][1] += delta.get("text", delta.get("thinking", delta.get("partial_json")))
            case "content_block_stop":
                assert (is_open, event["index"]) == (True, len(got) - 1)
                is_open = False
    assert not is_open
    return [tuple(block) for block in got]


def start_of(data: bytes) -> bytes:
    """The bytes after `message_start`, whose id differs from answer to answer."""
    first = EVENT.match(data)
    assert first
    assert re.fullmatch(rb'"id":"msg_[0-9a-f]{32}"', first[2][first[2].index(b'"id"') :].split(b",")[0])
    return data[first.end() :]


def test_the_bytes_of_a_text() -> None:
    data = stream(said(response="é\n\u2028", model="w"), said(response='"b"'), END)
    message = events(data)[0]["message"]
    assert message | {"id": ""} == {
        "type": "message",
        "id": "",
        "model": "w",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    assert start_of(data) == (
        b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        b'"content_block":{"type":"text","text":""}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"\xc3\xa9\\n\xe2\x80\xa8"}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"\\"b\\""}}\n\n'
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
        b'"usage":{"input_tokens":9,"output_tokens":4}}\n\n'
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )


def test_the_bytes_of_thinking_and_a_call() -> None:
    data = stream(said(reasoning="hm"), said(signature="s:1"), call(0, "", id="i", name="n"), call(0, '{"a":1}'), END)
    assert start_of(data).split(b"event: message_delta")[0] == (
        b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        b'"content_block":{"type":"thinking","thinking":"","signature":""}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"thinking_delta","thinking":"hm"}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"signature_delta","signature":"s:1"}}\n\n'
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        b'event: content_block_start\ndata: {"type":"content_block_start","index":1,'
        b'"content_block":{"type":"tool_use","id":"i","name":"n","input":{}}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,'
        b'"delta":{"type":"input_json_delta","partial_json":"{\\"a\\":1}"}}\n\n'
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":1}\n\n'
    )


ORDER: list[tuple[str, list[TextCompletionResponse], list[tuple[str, ...]]]] = [
    ("nothing", [], []),
    (
        "one record with all",
        [said(reasoning="r", signature="s:", response="t", tool_calls=(ToolCallDelta(0, "i", "n"),))],
        [("thinking", "r", "s:"), ("text", "t"), ("tool_use", "", "i", "n")],
    ),
    (
        "thinking twice",
        [said(reasoning="a"), said(signature="s:1"), said(reasoning="b"), said(signature="s:2")],
        [("thinking", "a", "s:1"), ("thinking", "b", "s:2")],
    ),
    (
        "unsigned thinking",
        [said(reasoning="a"), said(reasoning="b"), said(response="c")],
        [("thinking", "ab"), ("text", "c")],
    ),
    (
        "a signature alone",
        [said(signature="s:1"), said(signature="s:2")],
        [("thinking", "", "s:1"), ("thinking", "", "s:2")],
    ),
    (
        "thinking after text",
        [said(response="a"), said(reasoning="b"), said(response="c")],
        [("text", "a"), ("thinking", "b"), ("text", "c")],
    ),
    (
        "calls side by side",
        [
            call(0, '{"a', id="i", name="n"),
            call(1, '{"c"', id="j", name="m"),
            call(0, '":"}'),
            call(1, ":2}"),
            call(0, '"}'),
        ],
        [("tool_use", '{"a":"}"}', "i", "n"), ("tool_use", '{"c":2}', "j", "m")],
    ),
    (
        "calls that never end",
        [call(0, "{", id="i", name="n"), call(1, "[", id="j", name="m"), call(2, "", id="k", name="o")],
        [("tool_use", "{", "i", "n"), ("tool_use", "[", "j", "m"), ("tool_use", "", "k", "o")],
    ),
    (
        "text beside an open call",
        [call(0, "{", id="i", name="n"), said(response="a"), said(response="b"), call(0, "}")],
        [("tool_use", "{}", "i", "n"), ("text", "ab")],
    ),
    (
        "a call's signature",
        [said(tool_calls=(ToolCallDelta(0, "i:1", "n", "{}", "g:x:y"),))],
        [("thinking", "", "tool-use:i%3A1:g:x:y"), ("tool_use", "{}", "i:1", "n")],
    ),
    (
        "a call's late signature",
        [call(0, "{", id="i", name="n"), call(0, "}", signature="g:1")],
        [("tool_use", "{}", "i", "n"), ("thinking", "", "tool-use:i:g:1")],
    ),
    (
        "blanks after a call",
        [call(0, "{}", id="i", name="n"), said(response="a"), call(0, " \n")],
        [("tool_use", "{}", "i", "n"), ("text", "a")],
    ),
]


@pytest.mark.parametrize(("records", "expected"), [row[1:] for row in ORDER], ids=[row[0] for row in ORDER])
def test_blocks_come_one_after_the_other(
    records: list[TextCompletionResponse], expected: list[tuple[str, ...]]
) -> None:
    assert blocks(stream(*records, END)) == expected


def test_a_call_without_an_id_gets_one() -> None:
    ((kind, _, name, _),) = blocks(stream(call(0, "{}", name="n"), END))
    assert (kind, name[:6], len(name)) == ("tool_use", "toolu_", 38)


def test_a_later_call_streams_as_soon_as_the_one_before_is_complete() -> None:
    writer = StreamWriter("m", "r")
    writer.write(call(0, '{"a":1}', id="i", name="n"))
    assert b'"partial_json":"{\\"b"' in writer.write(call(1, '{"b', id="j", name="n"))
    assert writer.write(call(2, "{}", id="k", name="n")) == b""
    assert writer.write(call(1, '":2}')).count(b"event: ") == 4


def test_what_goes_on_after_its_end_is_refused() -> None:
    writer = StreamWriter("m", "r")
    writer.write(call(0, "{}", id="i", name="n"))
    writer.write(said(response="a"))
    with pytest.raises(ProtocolError):
        writer.write(call(0, "{}"))


def test_what_waits_is_bounded() -> None:
    writer = StreamWriter("m", "r")
    writer.write(call(0, "{", id="i", name="n"))
    writer.write(call(1, "x" * (MAX_WAITING_CHARACTERS - BLOCK_CHARACTERS), id="j", name="n"))
    with pytest.raises(TooLarge):
        writer.write(said(response="y"))


@pytest.mark.parametrize(
    "pieces",
    [(said(response="y"), said(reasoning="z")), (said(signature="x:" + "s" * 1000),)],
    ids=["many blocks", "signatures"],
)
def test_how_many_blocks_wait_is_bounded(pieces: tuple[TextCompletionResponse, ...]) -> None:
    writer = StreamWriter("m", "r")
    writer.write(call(0, "{", id="i", name="n"))
    many = pieces * (MAX_WAITING_CHARACTERS // BLOCK_CHARACTERS)
    with pytest.raises(TooLarge):
        list(map(writer.write, many))


def test_all_calls_of_an_answer_may_come_at_once() -> None:
    writer = StreamWriter("m", "r")
    for arguments in ("{", "}"):
        for number in range(MAX_CALL_INDEX + 1):
            writer.write(call(number, arguments, id=f"i{number}", name="n"))
    assert b"message_stop" in writer.end()


def test_what_has_waited_makes_room() -> None:
    writer, size = StreamWriter("m", "r"), MAX_WAITING_CHARACTERS - BLOCK_CHARACTERS
    for number in range(0, 6, 2):
        writer.write(call(number, "{", id="i", name="n"))
        writer.write(call(number + 1, "{" + " " * (size - 9) + "}", id="j", name="n"))
        told = writer.write(call(number, "}"))
        assert len(told) > size
        assert max(len(line) for line in told.splitlines()) < 2 * MAX_EVENT_BYTES


ENDINGS: list[tuple[dict[str, Any], str, str | None]] = [
    ({"finish_reason": "stop"}, "end_turn", None),
    ({"finish_reason": None}, "end_turn", None),
    ({"finish_reason": "stop", "stopped_by": "\n\nHuman"}, "stop_sequence", "\n\nHuman"),
    ({"finish_reason": "stop", "stopped_by": 7}, "end_turn", None),
    ({"finish_reason": "length"}, "max_tokens", None),
    ({"finish_reason": "tool_calls", "tool_calls": (ToolCallDelta(0, "i", "n", "{}"),)}, "tool_use", None),
    ({"finish_reason": "stop", "tool_calls": (ToolCallDelta(0, "i", "n", "{}"),)}, "tool_use", None),
    ({"finish_reason": "content_filter"}, "refusal", None),
]


@pytest.mark.parametrize(("fields", "reason", "sequence"), ENDINGS)
def test_why_it_ended(fields: dict[str, Any], reason: str, sequence: str | None) -> None:
    record = said(**fields, end_of_stream=True)
    assert events(stream(record))[-2]["delta"] == {"stop_reason": reason, "stop_sequence": sequence}
    message = whole(record)
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        ({}, {"input_tokens": 0, "output_tokens": 0}),
        ({"in_token": 5, "out_token": 2}, {"input_tokens": 5, "output_tokens": 2}),
        (
            {"in_token": 10, "out_token": 2, "cached_token": 3, "cache_write_token": 4, "reasoning_token": 1},
            {
                "input_tokens": 3,
                "output_tokens": 2,
                "cache_creation_input_tokens": 4,
                "cache_read_input_tokens": 3,
                "output_tokens_details": {"thinking_tokens": 1},
            },
        ),
        (
            {"in_token": 3, "cached_token": 9},
            {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 9},
        ),
    ],
)
def test_the_usage_is_that_of_the_whole_answer(fields: dict[str, Any], usage: dict[str, Any]) -> None:
    first = said(response="a", out_token=1, in_token=1)
    last = said(**fields, end_of_stream=True)
    assert events(stream(last))[-2]["usage"] == usage
    assert whole(last)["usage"] == usage
    both = events(stream(first, last))
    assert both[0]["message"]["usage"] == {"input_tokens": 1, "output_tokens": 1}
    assert both[-2]["usage"]["output_tokens"] == 1 + usage["output_tokens"]


def whole(*records: TextCompletionResponse) -> dict[str, Any]:
    writer = CompletionWriter(partial(encode_message, model="m"))
    for record in records:
        assert writer.write(record) == b""
    message: dict[str, Any] = json.loads(writer.end())
    PublishedMessage.model_validate(message, strict=True)
    return message


def test_a_whole_message() -> None:
    message = whole(
        said(reasoning="a", model="w"),
        said(signature="s:1"),
        said(response="b"),
        call(0, '{"x": 1}', id="i", name="n"),
        said(reasoning="c"),
        call(1, "", id="j", name="n", signature="g:1"),
        call(2, '{"x"', id="k", name="n"),
        END,
    )
    assert message | {"id": ""} == {
        "type": "message",
        "id": "",
        "model": "w",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "a", "signature": "s:1"},
            {"type": "text", "text": "b"},
            {"type": "tool_use", "id": "i", "name": "n", "input": {"x": 1}},
            {"type": "thinking", "thinking": "c", "signature": ""},
            {"type": "thinking", "thinking": "", "signature": "tool-use:j:g:1"},
            {"type": "tool_use", "id": "j", "name": "n", "input": {}},
            {"type": "tool_use", "id": "k", "name": "n", "input": {"INVALID_JSON": '{"x"'}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 4},
    }


def test_a_count() -> None:
    writer = CompletionWriter(encode_count)
    writer.write(said(in_token=7, end_of_stream=True))
    assert writer.end() == b'{"input_tokens":7}'
    nothing = CompletionWriter(encode_count)
    nothing.write(said(end_of_stream=True))
    with pytest.raises(ProtocolError):
        nothing.end()


@pytest.mark.parametrize(
    ("error", "kind"), [(RateLimited("slow"), "rate_limit_error"), (Unavailable("slow"), "overloaded_error")]
)
def test_a_failure_is_an_event(error: Any, kind: str) -> None:
    data = StreamWriter("m", "r").fail(error)
    assert data == (
        b'event: error\ndata: {"type":"error","error":{"type":"%b","message":"slow"},"request_id":"r"}\n\n'
        % kind.encode()
    )
    assert StreamWriter("m", "r").cut_after_failure
