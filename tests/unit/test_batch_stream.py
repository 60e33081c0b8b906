"""Streams of a batch, in any order, are read as one answer: nothing is lost, numbered by request, with one end."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.unasked_stream import open_unasked
from tg_base.client import ResponseStream
from tg_gateway.dialects import Batch
from tg_gateway.relay.batch_stream import MAX_ASKED_BYTES, MAX_BUFFERED_BYTES, BatchStream, check_size
from tg_schema import TextCompletionRequest, TextCompletionResponse, encode
from tg_schema.errors import ProtocolError, SlowConsumer, TooLarge, Unavailable

Record = TextCompletionResponse
Stream = ResponseStream[Any]


def open_streams(
    count: int,
    *,
    answers: int = 1,
    streaming: bool = True,
    uniform: bool = False,
    independent: bool = False,
    models: str = "",
) -> tuple[BatchStream, list[Stream]]:
    request = TextCompletionRequest(prompt="p", streaming=streaming)
    batch = BatchStream(Batch((request,) * count, answers, uniform=uniform, independent=independent))
    streams: list[Stream] = [
        open_unasked(f"s{number}", model=models[number : number + 1] or None) for number in range(count)
    ]
    for number, stream in enumerate(streams):
        batch.add(number, stream)
    return batch, streams


def put(stream: Stream, record: Record) -> None:
    stream.put(encode(record), last=record.last)


def drain(batch: BatchStream) -> list[Any]:
    read = []
    while (record := batch.poll()) is not None:
        read.append(record)
    return read


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.text("ab", min_size=1, max_size=3), max_size=4), min_size=1, max_size=4), st.data())
def test_all_is_read_once_and_in_order(texts: list[list[str]], data: st.DataObject) -> None:
    async def run() -> None:
        batch, streams = open_streams(len(texts), answers=2)
        woken = 0

        def wake() -> None:
            nonlocal woken
            woken += 1

        batch.listen(wake)
        left = [[*[Record(response=text, index=1) for text in each], Record(end_of_stream=True)] for each in texts]
        read: list[Record] = []
        puts = 0
        while any(left):
            number = data.draw(st.sampled_from([place for place, each in enumerate(left) if each]))
            put(streams[number], left[number].pop(0))
            puts += 1
            if data.draw(st.booleans()):
                read += drain(batch)
                assert batch.complete is not any(left) or batch.complete
        read += drain(batch)
        assert (batch.complete, woken, batch.waiting) == (True, puts, 0)
        assert [record.last for record in read] == [False] * (len(read) - 1) + [True]
        for number, each in enumerate(texts):
            mine = [record.response or "" for record in read if record.index == 2 * number + 1]
            assert "".join(mine) == "".join(each)
        for stream in streams:
            stream.close()

    asyncio.run(run())


async def test_one_that_fails_fails_all() -> None:
    batch, streams = open_streams(2)
    put(streams[0], Record(response="a"))
    streams[1].fail(Unavailable("gone"))
    assert batch.poll().response == "a"
    with pytest.raises(Unavailable, match="gone"):
        batch.poll()
    batch, streams = open_streams(2)
    batch.fail(Unavailable("leaving"))
    with pytest.raises(Unavailable, match="leaving"):
        batch.poll()


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_slow_reader_holds_as_much_of_all_streams_as_of_one(*, streaming: bool) -> None:
    batch, streams = open_streams(4, streaming=streaming)
    for stream in streams:
        put(stream, Record(response="x" * (MAX_BUFFERED_BYTES // 4)))
    if streaming:
        with pytest.raises(SlowConsumer):
            batch.poll()
    else:
        assert sum(len(record.response or "") for record in drain(batch)) == MAX_BUFFERED_BYTES


@pytest.mark.parametrize("uniform", [True, False])
async def test_two_models_do_not_answer_what_one_must(*, uniform: bool) -> None:
    batch, streams = open_streams(3, uniform=uniform, models="aab")
    for stream, model in zip(streams, "aab", strict=True):
        put(stream, Record(response=model, end_of_stream=True))
    assert [batch.poll().response for _ in range(2)] == ["a", "a"]
    if uniform:
        with pytest.raises(Unavailable, match="two models of the route"):
            batch.poll()
    else:
        assert batch.poll().response == "b"


async def test_an_answer_that_nobody_asked_for_is_not_anothers() -> None:
    batch, streams = open_streams(2)
    put(streams[0], Record(response="a", index=1))
    with pytest.raises(ProtocolError, match="more answers"):
        batch.poll()


def test_what_all_requests_repeat_is_bounded_together() -> None:
    shared = "x" * (MAX_ASKED_BYTES // 1000)
    requests = [TextCompletionRequest(prompt="p", suffix=shared)] * 1001
    with pytest.raises(TooLarge, match="repeats the parameters"):
        check_size(requests)
    check_size(requests[:990])
    # A long first and last one are no reason.
    check_size([requests[0], *[TextCompletionRequest(prompt="p")] * 1001, requests[0]])
