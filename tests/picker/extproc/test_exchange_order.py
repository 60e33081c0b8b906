"""Parts of a request that come in odd orders, at the limits, or not at all: what the picker and the course are told."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from typing_extensions import override

from tests.picker.extproc.process_calls import PROCESS
from tests.picker.extproc.scripted_picker import ScriptedPicker
from tests.picker.extproc.test_exchange import (
    BODY,
    Mode,
    body,
    headers,
    kinds,
    response,
    response_headers,
    run,
    streamed,
)
from tg_picker.core import InstanceUsage
from tg_picker.extproc import wire
from tg_picker.extproc.decision import Asked, Directed, Refused
from tg_picker.extproc.exchange import MAX_BODY_BYTES, Exchange
from tg_picker.extproc.picker_server import serve_picker

TRAILERS = wire.ProcessingRequest(request_trailers=wire.HttpTrailers())
RESPONSE_TRAILERS = wire.ProcessingRequest(response_trailers=wire.HttpTrailers())
PLAIN = {"content-type": "text/plain"}
USAGE = b'{"usage": {"prompt_tokens": 7, "completion_tokens": 3}}'


def status_of(text: str) -> wire.ProcessingRequest:
    listed = [wire.HeaderValue(key=":status", raw_value=text.encode())] if text else []
    return wire.ProcessingRequest(response_headers=wire.HttpHeaders(headers=wire.HeaderMap(headers=listed)))


@pytest.mark.parametrize("size", [MAX_BODY_BYTES, MAX_BODY_BYTES + 1])
@pytest.mark.parametrize("mode", [Mode.BUFFERED, Mode.FULL_DUPLEX_STREAMED])
async def test_how_large_a_body_may_be(size: int, mode: Mode.BodySendMode) -> None:
    answered, picker, exchange = await run([headers(mode=mode, more=PLAIN), body(bytes(size))])
    is_right = size == MAX_BODY_BYTES
    assert [len(asked.body or b"") for asked in picker.asked] == ([size] if is_right else [])
    assert exchange.over != is_right
    if not is_right:
        assert answered[-1].immediate_response.status.code == 413
    # A refused body is answered by nothing more.
    assert (kinds(answered)[-1] == "immediate_response") != is_right


async def test_headers_that_come_again_are_not_decided_again() -> None:
    _, picker, _ = await run([headers(end=True), headers(end=True)])
    assert len(picker.asked) == 1


async def test_a_request_without_a_body_is_decided_by_its_headers() -> None:
    answered, picker, _ = await run([headers(end=True)])
    assert kinds(answered) == ["request_headers"]
    assert [asked.body for asked in picker.asked] == [None]


async def test_trailers_end_a_body_once_and_say_so_themselves() -> None:
    answered, picker, _ = await run([headers(more=PLAIN), body(b"abc", end=False), TRAILERS])
    assert kinds(answered) == ["request_headers", "request_body", "request_trailers"]
    assert streamed(answered[:2]) == [(b"abc", False)]
    answered, picker, _ = await run([headers(more=PLAIN), body(b"abc"), TRAILERS])
    assert kinds(answered) == ["request_headers", "request_body", "request_trailers"]
    assert streamed(answered[:2]) == [(b"abc", True)]
    assert len(picker.asked) == 1


async def test_a_buffered_body_that_says_no_end_is_whole() -> None:
    answered, picker, _ = await run([headers(mode=Mode.BUFFERED), body(BODY, end=False)])
    assert kinds(answered) == ["request_headers", "request_body"]
    assert [asked.body for asked in picker.asked] == [BODY]


async def test_a_renamed_body_is_streamed_in_place_of_the_clients() -> None:
    answered, _, _ = await run([headers(), body(b'{"model":"other"}')])
    assert streamed(answered) == [(b'{"model":"base"}', True)]


@pytest.mark.parametrize(("text", "status"), [("200", 200), ("", 0), ("20x", 0)])
async def test_the_status_is_told(text: str, status: int) -> None:
    _, picker, _ = await run([headers(), body(BODY), status_of(text)])
    assert ("respond", status, "") in picker.courses[0].told


@pytest.mark.parametrize("mode", [Mode.BUFFERED, Mode.FULL_DUPLEX_STREAMED])
@pytest.mark.parametrize("piece", [b"", b"x"])
async def test_an_empty_piece_is_no_first_token(mode: Mode.BodySendMode, piece: bytes) -> None:
    _, picker, _ = await run([headers(mode=mode), body(BODY), response_headers(), response(piece, end=False)])
    assert ("begin" in picker.courses[0].told) == bool(piece)


@pytest.mark.parametrize("mode", [Mode.BUFFERED, Mode.FULL_DUPLEX_STREAMED])
async def test_a_piece_of_an_answer_goes_back_in_the_form_of_its_mode(mode: Mode.BodySendMode) -> None:
    answered, _, _ = await run([headers(mode=mode), body(BODY), response_headers(), response(b"piece", end=True)])
    part = answered[-1].response_body.response.body_mutation.streamed_response
    assert (part.body, part.end_of_stream) == ((b"piece", True) if mode == Mode.FULL_DUPLEX_STREAMED else (b"", False))


@pytest.mark.parametrize(
    ("last", "usage"),
    [
        ([response_headers(end=True)], None),
        ([response_headers(), response(USAGE, end=True)], InstanceUsage(7, 0, 3)),
        ([response_headers(), response(USAGE, end=False), RESPONSE_TRAILERS], InstanceUsage(7, 0, 3)),
    ],
)
async def test_whatever_ends_an_answer_ends_its_course_once(
    last: list[wire.ProcessingRequest], usage: InstanceUsage | None
) -> None:
    _, picker, exchange = await run([headers(), body(BODY), *last])
    course = picker.courses[0]
    assert course.over.is_set()
    assert course.told[-1] == (usage if usage is None else InstanceUsage.reported(7, None, 3))
    told = len(course.told)
    exchange.close()
    exchange.close()
    assert len(course.told) == told


class CountingPicker(ScriptedPicker):
    """It can be held before its decision."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.came = asyncio.Event()
        self.addresses = ("10.0.0.1:8000",)

    @override
    async def decide(self, asked: Asked) -> Directed | Refused:
        decision = await super().decide(asked)
        self.came.set()
        await self.gate.wait()
        return decision


@pytest.fixture
async def world() -> AsyncIterator[tuple[CountingPicker, Any]]:
    picker = CountingPicker()
    async with (
        asyncio.timeout(60),
        serve_picker(picker, "127.0.0.1:0") as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield picker, channel.stream_stream(PROCESS)


async def test_a_course_ends_when_envoy_leaves(world: tuple[CountingPicker, Any]) -> None:
    picker, process = world
    call = process()
    for each in (headers(), body(BODY)):
        await call.write(each.SerializeToString())
    assert kinds([wire.ProcessingResponse.FromString(await call.read())]) == ["request_headers"]
    call.cancel()
    await picker.courses[0].over.wait()


async def test_a_refusal_ends_the_call(world: tuple[CountingPicker, Any]) -> None:
    _, process = world
    call = process()
    for each in (headers(), body(b'{"model":"refuse-429"}')):
        await call.write(each.SerializeToString())
    answer = wire.ProcessingResponse.FromString(await call.read())
    assert answer.immediate_response.status.code == 429
    assert await call.read() is grpc.aio.EOF
    assert await call.code() == grpc.StatusCode.OK


async def test_what_is_no_message_is_told(world: tuple[CountingPicker, Any], caplog: pytest.LogCaptureFixture) -> None:
    _, process = world
    call = process(iter([b"\xff\xff\xff"]))
    assert await call.code() == grpc.StatusCode.INTERNAL
    assert "cannot be read" in await call.details()
    assert not caplog.records


async def test_a_course_that_was_decided_and_not_told_ends_too() -> None:
    picker = ScriptedPicker()
    picker.addresses = ("no\udcffbytes",)
    exchange = Exchange(picker)
    await exchange.take(headers(mode=Mode.BUFFERED))
    with pytest.raises(UnicodeEncodeError):
        await exchange.take(body(BODY))
    exchange.close()
    assert picker.courses[0].over.is_set()


async def test_what_an_exchange_holds_is_its_body_until_that_is_sent_on() -> None:
    size = 200_000
    for mode in (Mode.BUFFERED, Mode.FULL_DUPLEX_STREAMED):
        picker = CountingPicker()
        picker.gate.clear()
        exchange = Exchange(picker)
        await exchange.take(headers(mode=mode, more=PLAIN))
        few = exchange.count_held()
        assert 200 < few < 1_000
        if mode == Mode.FULL_DUPLEX_STREAMED:
            await exchange.take(body(bytes(size // 2), end=False))
            assert exchange.count_held() == few + size // 2
        left = size - (exchange.count_held() - few)
        deciding = asyncio.ensure_future(exchange.take(body(bytes(left))))
        await picker.came.wait()
        assert exchange.count_held() == few + size
        picker.gate.set()
        answers = iter(await deciding)
        if mode == Mode.FULL_DUPLEX_STREAMED:
            next(answers)
            next(answers)
            assert exchange.count_held() == few + size
        assert list(answers)
        assert exchange.count_held() == few
        await exchange.take(response_headers())
        await exchange.take(response(bytes(1_000), end=False))
        assert exchange.count_held() == few + 1_000
        exchange.close()
