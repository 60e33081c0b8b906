"""One stream's responses, waited for or listened to."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import pytest

from tests.fakes.unasked_stream import open_unasked
from tg_base.client import ResponseStream
from tg_base.client.response_stream import MAX_BUFFERED_BYTES
from tg_schema import Error, TextCompletionResponse, Token, ToolCallDelta, encode
from tg_schema.errors import ProtocolError, RateLimited, SlowConsumer
from tg_schema.pieces import MAX_EVENT_BYTES

Stream = ResponseStream[TextCompletionResponse]


@pytest.fixture
async def stream() -> AsyncIterator[Stream]:
    opened = open_unasked(timeout=5.0)
    yield opened
    opened.close()


def put(stream: Stream, text: str, *, last: bool = False) -> None:
    stream.put(encode(TextCompletionResponse(response=text, end_of_stream=last)), last=last)


def text_of(record: TextCompletionResponse | None) -> str | None:
    return None if record is None else record.response


async def test_a_listener_is_told_and_polls(stream: Stream) -> None:
    heard: list[str | None] = []
    put(stream, "early")
    stream.listen(lambda: heard.append(text_of(stream.poll())))
    assert heard == []
    put(stream, "a")
    assert heard == ["earlya"]
    put(stream, "b", last=True)
    assert (heard, stream.complete, stream.poll()) == (["earlya", "b"], True, None)


async def test_what_waits_is_joined(stream: Stream) -> None:
    for text in "abc":
        put(stream, text)
    assert text_of(stream.poll()) == "abc"
    assert stream.poll() is None


async def test_what_is_too_long_to_be_joined_comes_one_after_the_other(stream: Stream) -> None:
    texts = [letter * (MAX_EVENT_BYTES // 2) for letter in "abc"]
    for text in texts:
        put(stream, text)
    assert [text_of(stream.poll()) for _ in texts] == texts
    assert stream.poll() is None


async def test_who_left_while_waiting_is_not_woken(stream: Stream) -> None:
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    reading.cancel()
    put(stream, "a")
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert text_of(await anext(stream)) == "a"


async def test_a_listener_takes_over_from_who_iterated(stream: Stream) -> None:
    put(stream, "a")
    assert text_of(await anext(stream)) == "a"
    heard: list[str | None] = []
    stream.listen(lambda: heard.append(text_of(stream.poll())))
    put(stream, "b", last=True)
    assert heard == ["b"]


async def test_an_error_record_is_raised_after_what_came_before(stream: Stream) -> None:
    put(stream, "a")
    error = Error(type="rate-limited", message="later", retry_after=2.0)
    stream.put(encode(TextCompletionResponse.from_error(error)), last=True)
    assert text_of(stream.poll()) == "a"
    with pytest.raises(RateLimited) as raised:
        stream.poll()
    assert raised.value.retry_after == 2.0


async def test_a_body_that_is_no_record(stream: Stream) -> None:
    stream.put(b"{", last=False)
    with pytest.raises(ProtocolError):
        stream.poll()


async def test_a_reader_that_does_not_read(stream: Stream) -> None:
    for _ in range(3):
        put(stream, "x" * (MAX_BUFFERED_BYTES // 2))
    assert stream.failed
    read = 0
    while read < MAX_BUFFERED_BYTES:
        read += len(text_of(stream.poll()) or "")
    with pytest.raises(SlowConsumer):
        stream.poll()


async def test_a_slow_reader_gets_events_that_fit_into_a_line(stream: Stream) -> None:
    texts = [chr(1 + number % 31) * 500 + "€" for number in range(300)]
    for text in texts:
        put(stream, text)
    put(stream, "", last=True)
    records = []
    while (record := stream.poll()) is not None:
        records.append(record)
        assert stream.waiting == 0 or not record.last
    assert "".join(record.response or "" for record in records) == "".join(texts)
    assert max(len(encode(record)) for record in records) <= MAX_EVENT_BYTES
    assert 2 * 1024 * 1024 // 3 // MAX_EVENT_BYTES < len(records) < 30
    assert [record.last for record in records] == [False] * (len(records) - 1) + [True]


async def test_what_is_too_long_for_an_event_is_cut(stream: Stream) -> None:
    call = ToolCallDelta(0, "c", "see", '{"a":"' + "\\n" * 70_000 + '"}')
    token = Token(1, "tok", -0.5, ((1, -0.5),) * 20)
    whole = TextCompletionResponse(
        response="🙂\x1f" * 60_000, reasoning="é" * 90_000, tokens=(token,) * 1000, tool_calls=(call,), in_token=7,
        end_of_stream=True, finish_reason="length", model="m",
    )  # fmt: skip
    stream.put(encode(whole), last=True)
    records = [stream.poll() or whole]
    assert stream.waiting == len(encode(whole)), "what was cut waits too"
    while (record := stream.poll()) is not None:
        records.append(record)
        assert stream.waiting == 0 or not record.last
    assert max(len(encode(record)) for record in records) <= MAX_EVENT_BYTES + 512
    assert [record.finish_reason for record in records] == [None] * (len(records) - 1) + ["length"]
    assert TextCompletionResponse.join(records) == (whole,)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_stream_that_is_closed_needs_no_garbage_collector(fails: bool) -> None:
    """A large request must not stay in memory until one comes: there may be hundreds more before it does."""
    gc.collect()
    gc.disable()
    try:
        opened = open_unasked(timeout=5.0)
        freed = weakref.ref(opened)
        put(opened, "a", last=not fails)
        assert text_of(opened.poll()) == "a"
        if fails:
            opened.fail(RateLimited("later"))
            with pytest.raises(RateLimited):
                opened.poll()
        opened.close()
        del opened
        assert freed() is None
    finally:
        gc.enable()


async def test_that_a_model_opens_is_told_once_and_before_the_work_on_it(stream: Stream) -> None:
    told: list[str] = []
    stream.accept(opening=True)
    stream.listen_accepted(lambda: told.append("accepted"), lambda: told.append("opening"))
    assert told == ["opening"]
    stream.accept(opening=True)
    stream.accept()
    # Another attempt, whose processor opens the model too: work on it has begun before.
    stream.accept(opening=True)
    stream.accept()
    assert told == ["opening", "accepted"]
