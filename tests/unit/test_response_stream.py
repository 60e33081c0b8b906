"""One stream's responses, waited for or listened to."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tg_base.response_stream import BUFFER, ResponseStream
from tg_schema import Error, TextCompletionResponse
from tg_schema.codec import encode
from tg_schema.errors import ProtocolError, RateLimited, SlowConsumer, Timeout

Stream = ResponseStream[TextCompletionResponse]


@pytest.fixture
async def stream() -> AsyncIterator[Stream]:
    opened = ResponseStream("s", TextCompletionResponse, 5.0)
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


async def test_who_iterates_is_woken(stream: Stream) -> None:
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    put(stream, "a", last=True)
    assert text_of(await reading) == "a"
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_the_moment_that_the_oldest_came(stream: Stream) -> None:
    before = asyncio.get_running_loop().time()
    put(stream, "a")
    came = stream.came
    put(stream, "b")
    assert before <= came == stream.came
    stream.poll()
    put(stream, "c")
    assert stream.came >= came


async def test_an_error_record_is_raised_after_what_came_before(stream: Stream) -> None:
    put(stream, "a")
    error = Error(type="rate-limited", message="later", retry_after=2.0)
    stream.put(encode(TextCompletionResponse.failed(error)), last=True)
    assert text_of(stream.poll()) == "a"
    with pytest.raises(RateLimited) as raised:
        stream.poll()
    assert raised.value.retry_after == 2.0


async def test_a_listener_hears_of_a_failure(stream: Stream) -> None:
    failed = asyncio.Event()
    stream.listen(failed.set)
    stream.fail(Timeout("too late"))
    assert failed.is_set()
    with pytest.raises(Timeout):
        stream.poll()


async def test_a_body_that_is_no_record(stream: Stream) -> None:
    stream.put(b"{", last=False)
    with pytest.raises(ProtocolError):
        stream.poll()


async def test_a_reader_that_does_not_read(stream: Stream) -> None:
    for _ in range(3):
        put(stream, "x" * (BUFFER // 2))
    assert stream.failed
    assert text_of(stream.poll()) is not None
    with pytest.raises(SlowConsumer):
        stream.poll()
