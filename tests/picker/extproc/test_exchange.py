"""Envoy's messages, in the orders and splits that it may send, against one exchange."""

import itertools
import json
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.picker.extproc.scripted_picker import ScriptedPicker
from tg_picker.core import InstanceUsage
from tg_picker.extproc import wire
from tg_picker.extproc.exchange import Exchange
from tg_picker.extproc.messages import DESTINATION, MAX_PART_BYTES, SUBSET, SUBSET_NAMESPACE
from tg_picker.extproc.usage_reader import MAX_TAIL_BYTES, UsageReader

Mode = wire.ProcessingMode
MORE: Mapping[str, str] = {}
BODY = b'{"model":"m","messages":[]}'


def headers(
    end: bool = False, mode: Mode.BodySendMode = Mode.FULL_DUPLEX_STREAMED, more: Mapping[str, str] = MORE
) -> wire.ProcessingRequest:
    given = {":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json", **more}
    listed = [wire.HeaderValue(key=key, raw_value=value.encode()) for key, value in given.items()]
    return wire.ProcessingRequest(
        request_headers=wire.HttpHeaders(headers=wire.HeaderMap(headers=listed), end_of_stream=end),
        protocol_config=wire.ProtocolConfiguration(request_body_mode=mode, response_body_mode=mode),
    )


def destination_in(answer: wire.ProcessingResponse) -> str:
    return answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields[DESTINATION].string_value


def body(data: bytes, end: bool = True) -> wire.ProcessingRequest:
    return wire.ProcessingRequest(request_body=wire.HttpBody(body=data, end_of_stream=end))


def response(data: bytes, end: bool) -> wire.ProcessingRequest:
    return wire.ProcessingRequest(response_body=wire.HttpBody(body=data, end_of_stream=end))


def response_headers(kind: str = "application/json", end: bool = False) -> wire.ProcessingRequest:
    listed = [
        wire.HeaderValue(key=":status", raw_value=b"200"),
        wire.HeaderValue(key="content-type", value=kind),
    ]
    return wire.ProcessingRequest(
        response_headers=wire.HttpHeaders(headers=wire.HeaderMap(headers=listed), end_of_stream=end)
    )


async def run(
    messages: Sequence[wire.ProcessingRequest], addresses: tuple[str, ...] = ("10.0.0.1:8000",)
) -> tuple[list[wire.ProcessingResponse], ScriptedPicker, Exchange]:
    picker = ScriptedPicker()
    picker.addresses = addresses
    exchange = Exchange(picker)
    answered = [answer for message in messages for answer in await exchange.take(message)]
    return answered, picker, exchange


def kinds(answered: Sequence[wire.ProcessingResponse]) -> list[str | None]:
    return [answer.WhichOneof("response") for answer in answered]


def streamed(answered: Sequence[wire.ProcessingResponse]) -> list[tuple[bytes, bool]]:
    parts = [answer.request_body.response.body_mutation.streamed_response for answer in answered[1:]]
    return [(part.body, part.end_of_stream) for part in parts]


@given(st.binary(max_size=200_000), st.lists(st.integers(0, 200_000), max_size=5))
async def test_any_split_of_a_body_is_sent_on_whole_and_after_its_headers(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    sent = [body(piece, end=False) for piece in pieces[:-1]] + [body(pieces[-1])]
    answered, picker, _ = await run([headers(more={"content-type": "text/plain"}), *sent])
    assert kinds(answered)[0] == "request_headers"
    parts = streamed(answered)
    assert b"".join(part for part, _ in parts) == data == picker.asked[0].body
    assert [end for _, end in parts] == [False] * (len(parts) - 1) + [True]
    assert all(len(part) <= MAX_PART_BYTES for part, _ in parts)


async def test_a_doubled_end_of_the_body_is_ignored() -> None:
    answered, picker, _ = await run([headers(), body(BODY), body(BODY)])
    assert kinds(answered) == ["request_headers", "request_body"]
    assert len(picker.asked) == 1


async def test_nothing_is_said_before_the_body_is_complete() -> None:
    answered, _, _ = await run([headers(), body(BODY[:5], end=False)])
    assert answered == []


async def test_a_buffered_body_is_answered_in_place() -> None:
    answered, _, _ = await run([headers(mode=Mode.BUFFERED), body(b'{"model":"other","a":[1, 2]}')])
    assert kinds(answered) == ["request_headers", "request_body"]
    common = answered[1].request_body.response
    changed = common.body_mutation.body
    assert json.loads(changed) == {"model": "base", "a": [1, 2]}
    told = {option.header.key: option.header.raw_value for option in common.header_mutation.set_headers}
    assert told[DESTINATION] == b"10.0.0.1:8000"
    assert told["content-length"] == str(len(changed)).encode()
    assert common.clear_route_cache
    assert (
        answered[1].dynamic_metadata.fields["envoy.lb"].struct_value.fields[DESTINATION].string_value == "10.0.0.1:8000"
    )


@pytest.mark.parametrize("mode", [Mode.FULL_DUPLEX_STREAMED, Mode.BUFFERED])
async def test_a_changed_body_changes_no_answer_of_another_request(mode: Mode.BodySendMode) -> None:
    plain, _, _ = await run([headers(mode=mode), body(BODY)])
    before = [answer.SerializeToString() for answer in plain]
    changed, _, _ = await run([headers(mode=mode), body(b'{"model":"other"}')])
    after, _, _ = await run([headers(mode=mode), body(BODY)])
    assert any(b"content-length" in answer.SerializeToString() for answer in changed)
    assert [answer.SerializeToString() for answer in after] == before
    assert not any(b"content-length" in answer for answer in before)


async def test_a_list_of_fallbacks_is_in_header_and_metadata() -> None:
    answered, _, _ = await run([headers(), body(BODY)], ("a:1", "b:2"))
    common = answered[0].request_headers.response
    assert common.header_mutation.set_headers[0].header.raw_value == b"a:1,b:2"
    assert common.header_mutation.set_headers[0].append_action == wire.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    assert destination_in(answered[0]) == "a:1,b:2"


@pytest.mark.parametrize("mode", [Mode.STREAMED, Mode.BUFFERED_PARTIAL])
async def test_a_mode_in_which_no_body_can_be_read_is_refused_in_words(mode: Mode.BodySendMode) -> None:
    answered, _, exchange = await run([headers(mode=mode)])
    assert answered[0].immediate_response.status.code == 500
    assert b"request_body_mode" in answered[0].immediate_response.body
    assert exchange.over


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_refusal_has_the_shape_of_its_api(path: str) -> None:
    answered, _, exchange = await run([headers(more={":path": path}), body(b'{"model":"refuse-429"}')])
    refusal = answered[0].immediate_response
    assert (refusal.status.code, exchange.over) == (429, True)
    error = json.loads(refusal.body)["error"]
    assert error["message"] == "all are busy"
    assert error["type"] == ("rate_limit_error")
    assert ("code" in error) == (path != "/v1/messages")


@pytest.mark.parametrize("as_list", [True, False])
async def test_a_subset_reaches_the_picker(as_list: bool) -> None:
    message = headers(end=True)
    message.metadata_context.filter_metadata[SUBSET_NAMESPACE].update(
        {SUBSET: ["a:1", "b:2"] if as_list else "a:1, b:2"}
    )
    _, picker, _ = await run([message])
    assert picker.asked[0].subset == frozenset({"a:1", "b:2"})


async def test_trailers_end_a_body_that_did_not_say_so() -> None:
    trailers = wire.ProcessingRequest(request_trailers=wire.HttpTrailers())
    answered, _, _ = await run([headers(), body(BODY, end=False), trailers])
    assert kinds(answered) == ["request_headers", "request_body", "request_trailers"]
    assert streamed(answered[:2]) == [(BODY, False)]


@pytest.mark.parametrize("mode", [Mode.FULL_DUPLEX_STREAMED, Mode.BUFFERED])
async def test_every_piece_of_a_response_is_answered_at_once(mode: Mode.BodySendMode) -> None:
    answered, picker, exchange = await run(
        [headers(mode=mode), body(BODY), response_headers("text/event-stream"), response(b"data: x\n\n", end=False)]
    )
    assert kinds(answered[-2:]) == ["response_headers", "response_body"]
    part = answered[-1].response_body.response.body_mutation.streamed_response
    assert part.body == (b"data: x\n\n" if mode == Mode.FULL_DUPLEX_STREAMED else b"")
    exchange.close()
    exchange.close()
    assert picker.courses[0].told == [("respond", 200, ""), "begin", None]


@pytest.mark.parametrize(("mode", "unread"), [(Mode.NONE, True), (Mode.STREAMED, False)])
async def test_a_response_without_its_body_begins_with_its_headers(mode: Mode.BodySendMode, unread: bool) -> None:
    asking = headers(mode=Mode.BUFFERED)
    asking.protocol_config.response_body_mode = mode
    answered, picker, exchange = await run([asking, body(BODY), response_headers("text/event-stream")])
    assert kinds(answered) == ["request_headers", "request_body", "response_headers"]
    assert picker.asked[0].is_unread is unread
    assert picker.courses[0].told == [("respond", 200, ""), *(["begin"] if unread else [])]
    exchange.close()
    assert picker.courses[0].told[-1] is None


async def test_how_a_request_comes_is_told_by_its_headers_alone() -> None:
    """A later message may say how the response comes, and nothing of the body that is being collected."""
    piece = body(BODY[:5], end=False)
    piece.protocol_config.response_body_mode = piece.protocol_config.request_body_mode = Mode.NONE
    answered, picker, _ = await run([headers(), piece, body(BODY[5:]), response_headers()])
    assert picker.asked[0].body == BODY
    assert picker.asked[0].is_unread is False
    assert picker.courses[0].told == [("respond", 200, ""), "begin"]
    assert kinds(answered) == ["request_headers", "request_body", "response_headers"]


async def test_a_message_of_a_newer_protocol_is_answered_by_nothing() -> None:
    answered, _, _ = await run([wire.ProcessingRequest()])
    assert answered == []


USAGES = [
    (b'{"usage":{"prompt_tokens":5,"completion_tokens":2}}', InstanceUsage(5, None, 2)),
    (b'{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}}', InstanceUsage(5, 4, None)),
    (
        b'{"type":"response.completed","response":{"usage":{"input_tokens":1,"output_tokens":2}}}',
        InstanceUsage(1, None, 2),
    ),
    (b'{"type":"message_delta","usage":{"output_tokens":9,"cache_read_input_tokens":3}}', InstanceUsage(None, 3, 9)),
    (b'{"usage":{"prompt_tokens":-1,"completion_tokens":1000000000000}}', InstanceUsage(None, None, None)),
    (b'{"usage":null}', None),
    (b'{"usage":{"prompt_tokens":"many"}}', None),
    (b"[]", None),
    (b"\xff", None),
]


@pytest.mark.parametrize(("data", "usage"), USAGES)
@given(cuts=st.lists(st.integers(0, 300), max_size=4))
def test_usage_is_read_whole_and_from_events_in_any_split(
    data: bytes, usage: InstanceUsage | None, cuts: list[int]
) -> None:
    events = b"data: {}\n\nevent: x\ndata: " + data + b"\n\ndata: [DONE]\n\n"
    for kind, text in (("application/json; charset=utf-8", data), ("text/event-stream", events)):
        reader = UsageReader(kind)
        edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
        for start, end in itertools.pairwise(edges):
            reader.feed(text[start:end])
        assert reader.read() == usage


def test_of_a_long_stream_the_end_is_read_and_of_a_long_body_nothing() -> None:
    stream, whole = UsageReader("text/event-stream"), UsageReader("application/json")
    for _ in range(100):
        stream.feed(b"data: {}\n\n" * 1000)
        whole.feed(b" " * 10_000)
    stream.feed(b"data: " + USAGES[0][0] + b"\n\n")
    whole.feed(USAGES[0][0])
    assert stream.read() == USAGES[0][1]
    assert whole.read() is None
    assert len(stream._tail) <= 2 * MAX_TAIL_BYTES
