"""Records -> events of the Responses API: however the answer is split, one item at a time, and the same response."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flow.responses_stream import check_stream, read_events
from tests.unit.splittings import splittings
from tests.unit.test_responses_request import read
from tg_gateway.dialects import CompletionWriter, join_output
from tg_gateway.dialects.responses.encrypted_content import SealedReasoning, unseal
from tg_gateway.dialects.responses.output_draft import ITEM_BYTES
from tg_gateway.dialects.responses.request import encode_count
from tg_gateway.dialects.responses.response_draft import make_draft
from tg_gateway.dialects.responses.writers import EventWriter, encode_whole
from tg_schema import FinishReason, TextCompletionResponse, Token, ToolCallDelta
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import Cancelled, ContentFilter, IncompleteStream, ProtocolError, RateLimited, TgError, TooLarge

Record = TextCompletionResponse
OPEN_RESPONSES_REQUIRES = {
    *("id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id"),
    *("instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p"),
    *("presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage"),
    *("max_output_tokens", "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier"),
    "prompt_cache_key",
}
"""Open Responses, ResponseResource."""
SEALED = {"include": ["reasoning.encrypted_content"]}
LAST = Record(response="", in_token=10, out_token=4, finish_reason="stop", end_of_stream=True)


def stream(records: Sequence[Record], **fields: Any) -> list[dict[str, Any]]:
    writer = EventWriter(make_draft(read(**fields), "m"))
    return read_events(b"".join(join_output(writer.write(record)) for record in records) + join_output(writer.end()))


def whole(records: Sequence[Record], **fields: Any) -> dict[str, Any]:
    writer = CompletionWriter(partial(encode_whole, draft=make_draft(read(**fields), "m")))
    for record in records:
        writer.write(record)
    return dict(json.loads(writer.end()))


def said(final: dict[str, Any]) -> dict[str, Any]:
    """What two answers to the same request have in common: all but ids and times."""
    assert final.pop("completed_at") is None or final["status"] == "completed"
    del final["id"], final["created_at"]
    for item in final["output"]:
        prefix, _, number = item.pop("id").partition("_")
        item["place"] = (prefix, int(number[32:], 16))
    return final


def call(index: int, arguments: str, name: str | None = None, **fields: Any) -> Record:
    return Record(tool_calls=(ToolCallDelta(index, f"c{index}" if name else None, name, arguments, **fields),))


def shapes(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_the_events_of_a_text() -> None:
    events = stream([Record(response="Hel"), Record(response="lo"), LAST])
    assert shapes(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    final = check_stream(events)
    assert final["output"][0]["content"] == [
        {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    ]
    assert (final["status"], final["store"], final["background"]) == ("completed", False, False)
    assert final["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 14,
    }


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({}, ["content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"]),
        (
            {"reasoning": {"summary": "auto"}},
            [
                "reasoning_summary_part.added",
                "reasoning_summary_text.delta",
                "reasoning_summary_text.done",
                "reasoning_summary_part.done",
            ],
        ),
    ],
)
def test_the_events_of_thinking(fields: dict[str, Any], kinds: list[str]) -> None:
    events = stream([Record(reasoning="hm", signature="X:s"), LAST], **fields)
    assert shapes(events)[2:-1] == ["output_item.added", *kinds, "output_item.done"]
    (item,) = check_stream(events)["output"]
    assert (item["summary"] or item.get("content"))[0]["text"] == "hm"
    assert "encrypted_content" not in item


def test_signatures_are_sealed_with_what_they_sign() -> None:
    events = stream(
        [
            Record(reasoning="so"),
            Record(signature="X:1"),
            Record(signature="X:redacted"),
            call(0, "{}", "f", signature="X:call"),
            LAST,
        ],
        **SEALED,
    )
    first, second, third, fourth = check_stream(events)["output"]
    assert [item["type"] for item in (first, second, third, fourth)] == ["reasoning"] * 3 + ["function_call"]
    sealed = [unseal(item["encrypted_content"], SealedReasoning) for item in (first, second, third)]
    assert [(one.signature, one.text, one.call) for one in sealed if one] == [
        ("X:1", "so", None),
        ("X:redacted", "", None),
        ("X:call", "", "c0"),
    ]


def test_a_signature_that_comes_after_its_call_began() -> None:
    late = Record(tool_calls=(ToolCallDelta(0, arguments="}", signature="X:late"),))
    first, second = check_stream(stream([call(0, "{", "f"), late, LAST], **SEALED))["output"]
    sealed = unseal(second["encrypted_content"], SealedReasoning)
    assert first["arguments"] == "{}"
    assert sealed is not None
    assert (sealed.signature, sealed.call) == ("X:late", "c0")


def test_nothing_is_told_of_signatures_that_nobody_asked_for() -> None:
    records = [Record(signature="X:redacted"), call(0, "{}", "f", signature="X:call"), LAST]
    assert [item["type"] for item in check_stream(stream(records))["output"]] == ["function_call"]


def test_mixed_calls_come_one_after_the_other() -> None:
    records = [
        call(0, '{"a"', "f"),
        call(1, '{"b"', "g"),
        call(0, ":1}"),
        call(2, "", "h"),
        call(1, ":2}"),
        call(1, "\n"),
        LAST,
    ]
    final = check_stream(stream(records))
    assert [(item["name"], item["call_id"], item["arguments"].strip()) for item in final["output"]] == [
        ("f", "c0", '{"a":1}'),
        ("g", "c1", '{"b":2}'),
        ("h", "c2", "{}"),
    ]


def test_a_call_is_over_as_soon_as_it_is_whole_and_another_begins() -> None:
    writer = EventWriter(make_draft(read(), "m"))
    writer.write(call(0, '{"a":1}', "f"))
    assert shapes(read_events(join_output(writer.write(call(1, "{", "g"))))) == [
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
    ]


def test_a_call_that_goes_on_after_its_end_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="after it was complete"):
        stream([call(0, "{}", "f"), call(1, "{", "g"), call(0, "{}")])


def test_a_call_without_an_id_gets_one() -> None:
    piece = Record(tool_calls=(ToolCallDelta(0, None, "f", "{}"),))
    final = check_stream(stream([piece, LAST]))
    assert final["output"][0]["call_id"] == "call_" + final["id"].removeprefix("resp_") + "0000"


@pytest.mark.parametrize(("reason", "told"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_was_cut_is_incomplete(reason: FinishReason, told: str) -> None:
    records = [Record(reasoning="hm", response="Hel"), Record(response="", finish_reason=reason, end_of_stream=True)]
    events = stream(records)
    final = check_stream(events)
    assert events[-1]["type"] == "response.incomplete"
    assert (final["status"], final["incomplete_details"], final["completed_at"]) == (
        "incomplete",
        {"reason": told},
        None,
    )
    assert [item["status"] for item in final["output"]] == ["completed", "incomplete"]
    assert final["usage"] is None
    assert said(final) == said(whole(records))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (IncompleteStream("the provider's stream was cut"), "server_error"),
        (RateLimited("slow down"), "rate_limit_exceeded"),
        (ContentFilter("the provider refused"), "invalid_prompt"),
        (Cancelled("an operator has stopped this stream"), "server_error"),
    ],
)
@pytest.mark.parametrize("records", [[], [Record(response="Hel"), call(0, '{"a', "f"), call(1, "{", "g")]])
def test_a_failure_is_the_last_event(error: TgError, code: str, records: list[Record]) -> None:
    writer = EventWriter(make_draft(read(), "m"))
    events = read_events(
        b"".join(join_output(writer.write(record)) for record in records) + join_output(writer.fail(error))
    )
    final = check_stream(events)
    assert events[-1]["type"] == "response.failed"
    assert (final["status"], final["error"]) == ("failed", {"code": code, "message": error.message})
    assert [item["status"] for item in final["output"]] == ["completed", "incomplete"][: len(records)]
    assert writer.cut_after_failure


def test_log_probabilities_of_the_text() -> None:
    tokens = (
        Token(1, "Hé", -0.5, top=((1, -0.5), (2, -1.0)), top_texts=("Hé", "Ho")),
        Token(2, "\ufffd", -1.5, raw_bytes=b"\xc3"),
        Token(3, "<end>", -0.1, special=True),
        Token(4, "?"),
    )
    events = stream([Record(response="Hé\ufffd", tokens=tokens), LAST], include=["message.output_text.logprobs"])
    told = [
        {
            "token": "Hé",
            "logprob": -0.5,
            "bytes": list("Hé".encode()),
            "top_logprobs": [
                {"token": "Hé", "logprob": -0.5, "bytes": list("Hé".encode())},
                {"token": "Ho", "logprob": -1.0, "bytes": list(b"Ho")},
            ],
        },
        {"token": "\ufffd", "logprob": -1.5, "bytes": [0xC3], "top_logprobs": []},
    ]
    assert [event["logprobs"] for event in events if "logprobs" in event] == [told, told]
    assert check_stream(events)["output"][0]["content"][0]["logprobs"] == told
    assert (
        check_stream(stream([Record(response="a", tokens=tokens), LAST]))["output"][0]["content"][0]["logprobs"] == []
    )


def test_the_response_repeats_its_request() -> None:
    tool = {"type": "function", "name": "f", "description": None, "parameters": {"a": "\n"}, "strict": None}
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    fields = {
        "instructions": "be\nkind",
        "max_output_tokens": 9,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": "s",
        "temperature": 0.5,
        "tool_choice": {"type": "function", "name": "f"},
        "top_logprobs": 2,
        "top_p": 0.25,
        "user": "u",
    }
    events = stream([LAST], tools=[tool, {"type": "web_search"}], text={"format": form}, store=True, **fields)
    for event in (events[0], events[1], events[-1]):
        response = event["response"]
        assert {name: response[name] for name in fields} == fields
        told = {"format": form | {"description": None, "strict": False}}
        assert (response["tools"], response["text"], response["store"]) == ([tool], told, True)


def test_every_field_that_open_responses_requires_is_there() -> None:
    response = whole([Record(reasoning="hm", response="Hi"), LAST])
    assert set(response) >= OPEN_RESPONSES_REQUIRES
    numbers = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs")
    assert [response[name] for name in numbers] == [1, 1, 0, 0, 0]
    assert response["service_tier"] == "default"
    assert "encrypted_content" not in response["output"][0]


def test_what_is_kept_of_a_stream_is_bounded() -> None:
    writer = EventWriter(make_draft(read(), "m"))
    records = [Record(response="x" * 1_000_000)] * 6
    with pytest.raises(TooLarge, match="set max_output_tokens"):
        b"".join(join_output(writer.write(record)) for record in records)


def test_counts_beside_a_text_are_told() -> None:
    events = stream([Record(response="a"), Record(response="b", cached_token=3, reasoning_token=1), LAST])
    usage = events[-1]["response"]["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] == 3
    assert usage["output_tokens_details"]["reasoning_tokens"] == 1


def test_how_many_items_a_stream_has_is_bounded() -> None:
    writer = EventWriter(make_draft(read(**SEALED), "m"))
    many = [Record(signature="x:")] * (MAX_ANSWER_BYTES // ITEM_BYTES)
    with pytest.raises(TooLarge, match="set max_output_tokens"):
        list(map(writer.write, many))


def test_a_count_that_the_model_does_not_say_is_an_error() -> None:
    writer = CompletionWriter(encode_count)
    writer.write(Record(response="", end_of_stream=True))
    with pytest.raises(ProtocolError):
        writer.end()


TEXTS = st.text('aä€😀\n\u2028"\\', min_size=1, max_size=6)
ARGUMENTS = st.sampled_from(['{"a":[1,{"b":"}"}]}', '{"text":"ü\\n{"}', "{}"])


@st.composite
def answers(draw: st.DrawFn) -> list[Record]:
    """An answer as records of one piece each: thinking with or without a signature, text, then calls, any of them."""
    records = [Record(reasoning=draw(TEXTS)) for _ in range(draw(st.integers(0, 3)))]
    records += draw(st.sampled_from([[], [Record(signature="X:s")]])) if records else []
    records += [Record(response=draw(TEXTS)) for _ in range(draw(st.integers(0, 3)))]
    waiting: list[list[Record]] = []
    for index in range(draw(st.integers(0, 3))):
        arguments = draw(ARGUMENTS)
        cuts = sorted(draw(st.lists(st.integers(0, len(arguments)), max_size=4)))
        pieces = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
        waiting.append([call(index, pieces[0], "f"), *(call(index, piece) for piece in pieces[1:])])
    begun = [pieces.pop(0) for pieces in waiting]
    # The calls begin in order; what follows of them comes in any order.
    records += begun
    while any(waiting):
        records.append(draw(st.sampled_from([pieces for pieces in waiting if pieces])).pop(0))
    return [*records, LAST]


@given(answers(), st.data())
def test_however_an_answer_is_split_the_response_is_the_same(records: list[Record], data: st.DataObject) -> None:
    expected = said(whole(records, **SEALED))
    for form in (records, data.draw(splittings(records)), list(Record.join(records))):
        assert said(check_stream(stream(form, **SEALED))) == expected
