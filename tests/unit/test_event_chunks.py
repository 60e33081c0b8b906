"""The reading loop of every provider over HTTP: turns for neighbours, and an end that stays the end."""

import asyncio
from collections.abc import Iterable
from contextvars import Context, ContextVar
from itertools import chain, pairwise, repeat
from typing import Self

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.read_body import ReadBody
from tg_base.llm import LlmChunk, join_chunks
from tg_base.llm.http import JsonLines, Take, event_chunks
from tg_base.llm.http.stream_reader import MAX_TURN_BYTES
from tg_schema.errors import ProtocolError

_read_chunk = msgspec.json.Decoder(LlmChunk).decode


class Decoder:
    """Events are chunks as they are; `[DONE]` ends the answer."""

    done = False

    def chunk(self, data: bytes) -> LlmChunk | None:
        if data == b"[DONE]":
            self.done = True
            return None
        return _read_chunk(data)


def event(chunk: LlmChunk) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


class Body:
    """What is read, read by read, without a wait in between."""

    def __init__(self, reads: Iterable[bytes]) -> None:
        self._reads = iter(reads)

    async def read(self) -> bytes:
        return next(self._reads, b"")


class Ticker:
    """Counts the turns that the loop gives to a neighbour."""

    ticks = 0

    async def run(self) -> None:
        while True:
            self.ticks += 1
            await asyncio.sleep(0)


SAID = LlmChunk("x", finish_reason="stop")
EVENTS = None, event(SAID) + b"data: [DONE]\n\n"
LINES = JsonLines, msgspec.json.encode(SAID) + b"\n"


@pytest.mark.parametrize(
    ("filler", "frames", "end"),
    [
        (b":\n", *EVENTS),
        (b"\n", *EVENTS),
        (b": comment\n\n", *EVENTS),
        (b"event: ping\n", *EVENTS),
        (b"\n", *LINES),
    ],
)
async def test_bytes_without_content_leave_the_loop_its_turns(
    filler: bytes, frames: type[JsonLines] | None, end: bytes
) -> None:
    size, neighbour = 4 * 1024 * 1024, Ticker()
    task = asyncio.create_task(neighbour.run())
    await asyncio.sleep(0)
    chunks = event_chunks(
        ReadBody(Body([filler * (size // len(filler)), end]).read), Decoder(), frames=frames() if frames else None
    )
    assert [chunk.text async for chunk in chunks] == ["x"]
    assert neighbour.ticks >= size // MAX_TURN_BYTES - 1
    task.cancel()


USAGE = LlmChunk(in_token=3, out_token=4)
MORE = LlmChunk(" and more", reasoning="hm")
LAST = LlmChunk("!", finish_reason="stop")


@pytest.mark.parametrize(
    "reads",
    [
        [event(LlmChunk("Hi")) + event(LAST) + event(MORE) + event(USAGE)],
        [event(LlmChunk("Hi")), event(LAST), event(MORE), event(USAGE)],
        [event(LlmChunk("Hi")), event(LAST), event(USAGE) + event(MORE) + b"data: [DONE]\n\n", event(MORE)],
        [event(LlmChunk("Hi")), event(LAST), *[event(MORE)] * 100, event(USAGE), b"data: {broken\n\n"],
    ],
)
async def test_text_after_the_end_is_no_text_of_the_answer(reads: list[bytes]) -> None:
    chunks = [chunk async for chunk in event_chunks(ReadBody(Body(reads).read), Decoder())]
    assert "".join(chunk.text for chunk in chunks) == "Hi!"
    assert not any(chunk.reasoning for chunk in chunks)
    assert (sum(chunk.in_token or 0 for chunk in chunks), sum(chunk.out_token or 0 for chunk in chunks)) == (3, 4)


async def test_text_for_ever_after_the_end_is_left_by_the_patience_for_usage() -> None:
    parts = chain([event(LAST)], repeat(event(MORE) * 100))

    async def read() -> bytes:
        await asyncio.sleep(0)
        return next(parts)

    assert [chunk.text async for chunk in event_chunks(ReadBody(read), Decoder(), usage_patience=0.2)] == ["!"]


@pytest.mark.parametrize("data", [b"{nonsense", b'{"text":5}', b'{"text":"\xff"}', b"[" * 100_000])
async def test_what_is_no_event_is_a_protocol_error_after_the_chunks_before_it(data: bytes) -> None:
    body = Body([event(LlmChunk("a")) + b"data: " + data + b"\n\n"])
    chunks = event_chunks(ReadBody(body.read), Decoder())
    assert await anext(chunks) == LlmChunk("a")
    with pytest.raises(ProtocolError, match="base_url") as caught:
        await anext(chunks)
    assert caught.value.__cause__ is None


async def test_of_several_answers_each_has_its_own_end() -> None:
    one_read = b"".join(
        event(chunk)
        for chunk in (
            LlmChunk("a"),
            LlmChunk("x", index=1),
            LlmChunk("b", finish_reason="stop"),
            LlmChunk("late"),
            LlmChunk("y", index=1),
        )
    )
    end = event(LlmChunk("z", index=1, finish_reason="length")) + event(LlmChunk("late", out_token=4))
    chunks = event_chunks(ReadBody(Body([one_read, end, b"data: [DONE]\n\n"]).read), Decoder(), answers=2)
    assert [chunk async for chunk in chunks] == [
        LlmChunk("ab", finish_reason="stop"),
        LlmChunk("xy", index=1),
        LlmChunk("z", index=1, finish_reason="length"),
        LlmChunk(out_token=4),
    ]


async def test_thinking_between_texts_of_one_read_keeps_its_place() -> None:
    chunks = (LlmChunk("a"), LlmChunk(reasoning="hm"), LlmChunk("b"), LlmChunk("c", finish_reason="stop"))
    read = b"".join(map(event, chunks))
    assert [(chunk.reasoning, chunk.text) async for chunk in event_chunks(ReadBody(Body([read]).read), Decoder())] == [
        (None, "a"),
        ("hm", "bc"),
    ]


@pytest.mark.parametrize(
    ("chunks", "joined"),
    [
        ((), ()),
        ((LlmChunk("a", model="m"), LlmChunk("b"), LlmChunk("")), (LlmChunk("ab", model="m"),)),
        ((LlmChunk("a", index=2), LlmChunk("b", model="n", index=2)), (LlmChunk("ab", model="n", index=2),)),
        ((LlmChunk("a"), LlmChunk("b", index=1)), (LlmChunk("a"), LlmChunk("b", index=1))),
        ((LlmChunk("a"), LlmChunk("b", out_token=0)), (LlmChunk("ab", out_token=0),)),
        ((LlmChunk("a"), LlmChunk("b", finish_reason="stop")), (LlmChunk("ab", finish_reason="stop"),)),
        ((LlmChunk("a"), LlmChunk(reasoning="r")), (LlmChunk("a"), LlmChunk(reasoning="r"))),
    ],
)
def test_texts_of_one_answer_are_joined_as_all_else(chunks: tuple[LlmChunk, ...], joined: tuple[LlmChunk, ...]) -> None:
    assert join_chunks(chunks) == joined


plain = st.builds(
    LlmChunk,
    st.sampled_from(["", "a", "b"]),
    model=st.sampled_from([None, "m", "n"]),
    finish_reason=st.sampled_from([None, None, "stop", "length"]),
    in_token=st.sampled_from([None, 0, 3]),
    out_token=st.sampled_from([None, 0, 5]),
)


@given(st.lists(plain, min_size=1, max_size=6))
def test_an_end_and_counts_are_joined_as_beside_what_is_not_plain(chunks: list[LlmChunk]) -> None:
    """A stop that is told makes the others be grouped; it says nothing else, and comes first, before any end."""
    (grouped,) = join_chunks((LlmChunk(stopped_by="x"), *chunks))
    (joined,) = join_chunks((LlmChunk(), *chunks))
    assert msgspec.structs.replace(joined, stopped_by="x") == grouped


class Offered:
    """A body that offers each read to its listener first, as a connection does while a task waits."""

    ended = False

    def __init__(self, reads: Iterable[bytes]) -> None:
        self._reads = iter(reads)
        self.offered = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def listen(self, take: Take) -> None:
        self._take = take

    async def read(self) -> bytes:
        for received in self._reads:
            try:
                # The context of whoever opened the connection.
                left = Context().run(self._take, received)
            except BaseException as error:
                raise AssertionError("in a socket's call a SystemExit ends the process") from error
            self.offered += left != received
            if left:
                return left
        return b""


async def read_all(body: Offered, room: int) -> tuple[list[LlmChunk], str]:
    """What comes, and the error: of what need not be awaited, each `room`-th chunk fills the consumer; 0 = none is."""
    chunks: list[LlmChunk] = []

    def keep(chunk: LlmChunk) -> bool:
        chunks.append(chunk)
        return len(chunks) % room > 0

    stream = event_chunks(body, Decoder())
    try:
        chunks.append(await anext(stream))
        while True:
            chunks.append(await stream.asend(keep if room else None))
    except StopAsyncIteration:
        return chunks, ""
    except ProtocolError as error:
        return chunks, error.message


ENDS = (
    event(LAST) + event(USAGE) + b"data: [DONE]\n\n",
    event(LAST) + b"data: {broken\n\n",
    b"data: {broken\n\n" + event(MORE),
    b"data: [DONE]\n\n",
    b"",
)


@given(st.sampled_from(ENDS), st.sets(st.integers(1, 400)), st.integers(1, 3))
async def test_what_is_passed_on_is_the_same_as_what_is_awaited(end: bytes, cuts: set[int], room: int) -> None:
    whole = b"".join(event(LlmChunk(text, model="m")) for text in "abcdef") + end
    places = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    reads = [whole[start:stop] for start, stop in pairwise(places)]
    awaited, awaited_error = await read_all(Offered(reads), 0)
    passed, passed_error = await read_all(Offered(reads), room)
    assert (join_chunks(passed), passed_error) == (join_chunks(awaited), awaited_error)


async def test_only_the_first_chunk_and_the_end_wake_who_waits_for_chunks() -> None:
    body = Offered([event(LlmChunk(text)) for text in "abcd"] + [event(LAST), b"data: [DONE]\n\n"])
    chunks, _ = await read_all(body, 100)
    assert "".join(chunk.text for chunk in chunks) == "abcd!"
    # Of the six reads, the first came before anybody listened, the end wakes the reader, and then come the counts.
    assert body.offered == 3


@pytest.mark.parametrize("defect", [KeyError("defect"), SystemExit(3), asyncio.CancelledError()])
async def test_what_a_consumer_raises_is_raised_where_it_waits(defect: BaseException) -> None:
    def fail(_: LlmChunk) -> bool:
        raise defect

    body = Offered([event(LlmChunk("a")), event(LlmChunk("b")), event(LAST)])
    stream = event_chunks(body, Decoder())
    assert await anext(stream) == LlmChunk("a")
    with pytest.raises(type(defect)):
        await stream.asend(fail)


async def test_a_consumer_is_called_in_the_context_of_who_asks() -> None:
    """It may log, and a line of the log has the ids of its context's request."""
    asking = ContextVar("asking", default="another")
    found = list[str]()

    def note(_: LlmChunk) -> bool:
        found.append(asking.get())
        return True

    asking.set("this one")
    stream = event_chunks(Offered([event(LlmChunk("a")), event(LlmChunk("b"))]), Decoder(), 1.0)
    assert await anext(stream) == LlmChunk("a")
    with pytest.raises(StopAsyncIteration):
        await stream.asend(note)
    assert found == ["this one"]
