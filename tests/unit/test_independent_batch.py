"""Independent requests of a batch: one that fails has its error in its place, and the others go on to their ends."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.unasked_stream import open_unasked
from tests.unit.test_batch_stream import Record, drain, open_streams
from tg_gateway.dialects import Batch, FailedRequest
from tg_gateway.relay.batch_stream import BatchStream
from tg_schema import TextCompletionRequest, TgError, encode
from tg_schema.errors import TooLarge, Unavailable

GONE = Unavailable("gone")


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=5), st.data())
def test_in_any_order_each_request_ends_once(plans: list[tuple[int, bool]], data: st.DataObject) -> None:
    async def run() -> None:
        batch, streams = open_streams(len(plans), answers=2, independent=True)
        left = [[*["a"] * count, GONE if fails else None] for count, fails in plans]
        read: list[Any] = []
        while any(left):
            number = data.draw(st.sampled_from([place for place, each in enumerate(left) if each]))
            step, stream = left[number].pop(0), streams[number]
            if isinstance(step, TgError):
                stream.fail(step)
            else:
                record = Record(response=step, end_of_stream=step is None)
                stream.put(encode(record), last=record.last)
            if data.draw(st.booleans()):
                read += drain(batch)
        read += drain(batch)
        assert batch.complete
        assert [each.last for each in read] == [False] * (len(read) - 1) + [True]
        for number, (count, fails) in enumerate(plans):
            mine = [each for each in read if each.index == 2 * number]
            texts = [each.response or "" for each in mine if isinstance(each, Record)]
            errors = [each.error for each in mine if isinstance(each, FailedRequest)]
            assert ("".join(texts), errors) == ("a" * count, [GONE] if fails else [])
        for stream in streams:
            stream.close()

    asyncio.run(run())


async def test_what_was_never_asked_has_its_error_too() -> None:
    batch = BatchStream(Batch((TextCompletionRequest(prompt="p"),) * 2, independent=True))
    woken = asyncio.Event()
    batch.listen(woken.set)
    error = TooLarge("too large")
    batch.refuse(1, error)
    assert (woken.is_set(), batch.poll()) == (True, FailedRequest(1, error, last=False))
    batch.refuse(0, error)
    assert (drain(batch), batch.complete) == ([FailedRequest(0, error, last=True)], True)


async def test_what_ends_all_still_ends_all() -> None:
    batch, _ = open_streams(2, independent=True)
    batch.fail(GONE)
    with pytest.raises(Unavailable):
        batch.poll()
    # One that was just being asked is left at once.
    assert batch.add(2, open_unasked("s2")).is_set()


async def test_an_answer_that_nobody_asked_for_fails_its_request_alone() -> None:
    batch, streams = open_streams(2, independent=True)
    for index in (1, 0):
        streams[0].put(encode(Record(response="a", index=index)), last=False)
    (failed,) = drain(batch)
    assert isinstance(failed, FailedRequest)
    assert (failed.index, failed.error.type) == (0, "protocol")
    # What it sends afterwards is nobody's.
    streams[0].put(encode(Record(response="b")), last=False)
    streams[1].put(encode(Record(response="c", end_of_stream=True)), last=True)
    (last,) = drain(batch)
    assert (last.index, last.last, batch.complete) == (1, True, True)
