"""Anthropic's Messages -> our records, event by event."""

import json

import pytest

from tests.fakes.anthropic_transcript import delta, event
from tg_base.llm import LlmChunk, join_chunks
from tg_base.llm.anthropic import error_detail
from tg_base.llm.anthropic.stream import StreamDecoder
from tg_base.llm.http import UNREADABLE, ErrorDetail
from tg_schema import (
    TgError,
    ToolCallDelta,
)
from tg_schema.errors import BadRequest, RateLimited, TooLarge, Unavailable


def chunks(*events: bytes, by_tool: bool = False) -> list[LlmChunk]:
    answer = StreamDecoder(by_tool=by_tool)
    read = [answer.chunk(each.partition(b"data: ")[2].strip()) for each in events]
    return [chunk for chunk in read if chunk is not None]


def test_a_block_of_thinking_ends_with_its_signature() -> None:
    read = chunks(
        event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "thinking", thinking="hm"),
        delta(0, "signature", signature="SI"),
        delta(0, "signature", signature="G"),
        event("content_block_stop", index=0),
        event("content_block_start", index=1, content_block={"type": "redacted_thinking", "data": "DATA"}),
        event("content_block_stop", index=1),
    )
    assert [(chunk.reasoning, chunk.signature) for chunk in read] == [
        ("hm", None),
        (None, "anthropic:SIG"),
        (None, "anthropic-redacted:DATA"),
    ]


def test_calls_and_text_share_a_message() -> None:
    read = chunks(
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        delta(0, "text", text="so "),
        event("content_block_stop", index=0),
        event("content_block_start", index=1, content_block={"type": "tool_use", "id": "a", "name": "f", "input": {}}),
        delta(1, "input_json", partial_json=""),
        delta(1, "input_json", partial_json='{"x":'),
        event("content_block_start", index=2, content_block={"type": "tool_use", "id": "b", "name": "g", "input": {}}),
        delta(1, "input_json", partial_json="1}"),
        event("content_block_stop", index=1),
        event("content_block_stop", index=2),
        event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 5}),
        event("message_stop"),
    )
    (whole,) = join_chunks(read)
    assert (whole.text, whole.finish_reason, whole.out_token, whole.in_token) == ("so ", "tool_calls", 5, None)
    assert whole.tool_calls == (ToolCallDelta(0, "a", "f", '{"x":1}'), ToolCallDelta(1, "b", "g", "{}"))


def test_a_tools_input_as_the_answer() -> None:
    read = chunks(
        event("content_block_start", index=0, content_block={"type": "tool_use", "id": "a", "name": "answer"}),
        delta(0, "input_json", partial_json='{"x"'),
        delta(0, "input_json", partial_json=":1}"),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 5}),
        event("message_stop"),
        by_tool=True,
    )
    (whole,) = join_chunks(read)
    assert (whole.text, whole.finish_reason, whole.tool_calls) == ('{"x":1}', "stop", ())


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("of_next_year", "stop"),
    ],
)
def test_finish_reasons_count_once_the_message_stops(theirs: str, ours: str) -> None:
    told = event("message_delta", delta={"stop_reason": theirs})
    assert [chunk.finish_reason for chunk in chunks(told)] == []
    assert [chunk.finish_reason for chunk in chunks(told, event("message_stop"))] == [ours]


def test_the_stop_string_that_ended_the_answer() -> None:
    read = chunks(
        event("message_delta", delta={"stop_reason": "stop_sequence", "stop_sequence": "END"}), event("message_stop")
    )
    assert [(chunk.finish_reason, chunk.stopped_by) for chunk in read] == [("stop", "END")]


def test_a_stop_without_a_reason_is_no_end() -> None:
    assert [chunk.finish_reason for chunk in chunks(event("message_stop"))] == [None]


def test_usage_is_told_as_deltas_with_the_cache_in_it() -> None:
    read = chunks(
        event(
            "message_start",
            message={
                "model": "claude-1",
                "usage": {
                    "input_tokens": 3,
                    "cache_creation_input_tokens": 20,
                    "cache_read_input_tokens": 100,
                    "output_tokens": 1,
                },
            },
        ),
        event("message_delta", delta={}, usage={"output_tokens": 4}),
        event(
            "message_delta",
            delta={"stop_reason": "end_turn"},
            usage={"output_tokens": 9, "input_tokens": None, "output_tokens_details": {"thinking_tokens": 6}},
        ),
    )
    assert [(chunk.in_token, chunk.out_token, chunk.cached_token, chunk.reasoning_token) for chunk in read] == [
        (123, 1, 100, None),
        (None, 3, None, None),
        (None, 5, None, 6),
    ]
    assert [chunk.cache_write_token for chunk in read] == [20, None, None]


def test_what_we_do_not_know_is_passed_over() -> None:
    assert (
        chunks(
            event("ping"),
            event("of_next_year", index=1, delta=None),
            event("content_block_start", index=0, content_block={"type": "server_tool_use", "id": "x", "name": "y"}),
            delta(0, "input_json", partial_json="{}"),
            delta(0, "citations", citation={"type": "x"}),
            event("content_block_stop", index=0),
        )
        == []
    )


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"index":1}', b'{"type":"ping","index":"x"}', b"\xff", b"[" * 100_000]
)
def test_garbage_is_unreadable(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        StreamDecoder().chunk(data)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", Unavailable),
        ("api_error", Unavailable),
        ("rate_limit_error", RateLimited),
        ("invalid_request_error", BadRequest),
        ("request_too_large", TooLarge),
        ("of_next_year", Unavailable),
    ],
)
def test_errors_in_a_stream(kind: str, error: type[TgError]) -> None:
    data = json.dumps({"type": "error", "error": {"type": kind, "message": "sk-secret"}}).encode()
    with pytest.raises(error) as caught:
        StreamDecoder().chunk(data)
    assert type(caught.value) is error
    assert "secret" not in str(caught.value)
    assert error_detail(data) == ErrorDetail(kind)


@pytest.mark.parametrize("data", [b'{"type":"error"}', b'{"type":"error","error":{}}'])
def test_a_refusal_without_a_word(data: bytes) -> None:
    assert error_detail(data) == ErrorDetail()


@pytest.mark.parametrize("data", [b"<html>", b"{}", b"[" * 100_000, b"\xff"])
def test_a_refusal_by_somebody_else(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        error_detail(data)
