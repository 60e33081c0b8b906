"""Clocks, terminal marker and closing of a provider's stream, on a clock that the test moves by itself."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, suppress
from contextvars import Context
from typing import Any, TypeVar

import pytest
from typing_extensions import TypeVarTuple, Unpack, override

from tests.virtual_time import VirtualTimeLoop
from tg_base.llm import LlmChunk
from tg_base.llm.core import PassOn
from tg_base.llm.guard import Clocks, guard_stream
from tg_schema.errors import IncompleteStream, Timeout, Unavailable

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
CLOCKS = Clocks(first_token=60, idle=30, total=300)
WORD = LlmChunk("word ")
EMPTY = LlmChunk()
LAST = LlmChunk(finish_reason="stop")


class LeapingLoop(VirtualTimeLoop):
    def __init__(self) -> None:
        self.armed: list[asyncio.TimerHandle] = []
        super().__init__()

    @override
    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.armed.append(super().call_at(when, callback, *args, context=context))
        return self.armed[-1]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.run_until_complete(asyncio.wait_for(work, 100_000))

    def timers(self) -> list[asyncio.TimerHandle]:
        return [timer for timer in self.armed if not timer.cancelled() and timer.when() > self.time()]


@pytest.fixture
def loop() -> Iterator[LeapingLoop]:
    loop = LeapingLoop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class Source:
    """A provider's stream: chunks, and seconds to wait before the next."""

    def __init__(self, *steps: LlmChunk | float | Exception) -> None:
        self.steps = steps
        self.closed = False
        self.waiting = asyncio.Event()

    async def stream(self) -> AsyncGenerator[LlmChunk, PassOn | None]:
        on_chunk: PassOn | None = None
        try:
            for step in self.steps:
                if isinstance(step, LlmChunk):
                    if on_chunk is None:
                        on_chunk = yield step
                    elif not on_chunk(step):
                        on_chunk = None
                elif isinstance(step, Exception):
                    raise step
                else:
                    self.waiting.set()
                    await asyncio.sleep(step)
        finally:
            self.closed = True


async def read(
    source: Source, *, pause: float = 0.0, received: list[LlmChunk] | None = None, room: int = 0
) -> list[LlmChunk]:
    """All chunks; of those that come while one is awaited, `room` are taken without waiting."""
    chunks: list[LlmChunk] = [] if received is None else received
    passed = 0

    def keep(chunk: LlmChunk) -> bool:
        nonlocal passed
        passed += 1
        chunks.append(chunk)
        return passed % room > 0

    async with aclosing(guard_stream(source.stream(), CLOCKS)) as stream:
        with suppress(StopAsyncIteration):
            chunks.append(await anext(stream))
            while True:
                if pause:
                    await asyncio.sleep(pause)
                chunks.append(await stream.asend(keep if room else None))
    return chunks


each_way = pytest.mark.parametrize("room", [0, 1, 100], ids=["awaited", "one passed on", "all passed on"])


@each_way
def test_a_whole_stream_passes_unchanged(loop: LeapingLoop, room: int) -> None:
    source = Source(59.0, WORD, 29.0, LlmChunk(reasoning="hm"), 29.0, WORD, 29.0, LAST)
    assert loop.run(read(source, room=room)) == [WORD, LlmChunk(reasoning="hm"), WORD, LAST]
    assert source.closed


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((61.0, WORD, LAST), "no first token within 60 s"),
        ((50.0, EMPTY, 11.0, WORD, LAST), "no first token within 60 s"),
        ((1.0, WORD, 31.0, WORD, LAST), "no content for 30 s"),
        ((59.0, WORD, 31.0, LAST), "no content for 30 s"),
        ((WORD, 20.0, EMPTY, 11.0, WORD, LAST), "no content for 30 s"),
        ((WORD, *([20.0, WORD] * 20), LAST), "not finished within 300 s"),
        ((*([20.0, EMPTY] * 20), LAST), "no first token within 60 s"),
        ((EMPTY, 59.0, WORD, 31.0, WORD, LAST), "no content for 30 s"),
    ],
)
@each_way
def test_each_clock_runs_out(loop: LeapingLoop, steps: tuple[LlmChunk | float, ...], message: str, room: int) -> None:
    source = Source(*steps)
    with pytest.raises(Timeout, match=f"^the provider was too slow: {message}$"):
        loop.run(read(source, room=room))
    assert source.closed


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        ((1.0, WORD, 1000.0), 31.0),
        # The timer is set for the 60 s of the first token when the word comes.
        ((1.0, EMPTY, 34.0, WORD, 1000.0), 65.0),
        ((1.0, WORD, 20.0, WORD, 20.0, WORD, 5.0, EMPTY, 1000.0), 71.0),
    ],
)
@each_way
def test_the_idle_clock_runs_out_on_time(
    loop: LeapingLoop, steps: tuple[LlmChunk | float, ...], seconds: float, room: int
) -> None:
    async def measured() -> float:
        start = loop.time()
        with pytest.raises(Timeout):
            await read(Source(*steps, LAST), room=room)
        return loop.time() - start

    assert loop.run(measured()) == pytest.approx(seconds, abs=0.5)


@pytest.mark.parametrize("chunk", [WORD, EMPTY])
def test_a_slow_reader_does_not_count_against_the_provider(loop: LeapingLoop, chunk: LlmChunk) -> None:
    chunks = loop.run(read(Source(1.0, chunk, 1.0, chunk, 1.0, chunk, 1.0, LAST), pause=1000.0))
    assert chunks == [chunk, chunk, chunk, LAST]


@pytest.mark.parametrize("steps", [(), (WORD,), (WORD, WORD), (EMPTY,), (LlmChunk(in_token=3, out_token=4),)])
def test_a_stream_without_terminal_marker_is_incomplete(loop: LeapingLoop, steps: tuple[LlmChunk, ...]) -> None:
    source = Source(*steps)
    received: list[LlmChunk] = []
    with pytest.raises(IncompleteStream, match="without its terminal marker"):
        loop.run(read(source, received=received))
    assert received == list(steps)
    assert source.closed


def test_what_follows_the_terminal_marker_is_passed_on(loop: LeapingLoop) -> None:
    usage = LlmChunk(in_token=3, out_token=4)
    assert loop.run(read(Source(WORD, LAST, usage))) == [WORD, LAST, usage]


def test_the_sources_own_error_passes_and_closes_it(loop: LeapingLoop) -> None:
    source = Source(WORD, Unavailable("down"))
    with pytest.raises(Unavailable, match="down"):
        loop.run(read(source))
    assert source.closed


def test_leaving_early_closes_the_source_and_stops_the_timer(loop: LeapingLoop) -> None:
    async def leaving() -> None:
        source = Source(1.0, WORD, 1.0, WORD, LAST)
        async with aclosing(guard_stream(source.stream(), CLOCKS)) as stream:
            assert await anext(stream) == WORD
        assert source.closed

    loop.run(leaving())
    assert loop.timers() == []


def test_a_whole_stream_leaves_no_timer(loop: LeapingLoop) -> None:
    loop.run(read(Source(1.0, WORD, LAST)))
    assert loop.timers() == []


def test_a_cancelled_reader_is_cancelled_and_closes_the_source(loop: LeapingLoop) -> None:
    async def cancelling() -> None:
        source = Source(1.0, WORD, 10.0, WORD, LAST)
        task = asyncio.create_task(read(source))
        await source.waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.closed

    loop.run(cancelling())


def test_a_cancel_at_the_moment_that_a_clock_runs_out_stays_a_cancel(loop: LeapingLoop) -> None:
    async def cancelling() -> None:
        source = Source(1000.0, WORD, LAST)
        task = asyncio.create_task(read(source))
        await source.waiting.wait()
        loop.call_later(60.0, task.cancel)
        # Both timers are due in one turn of the loop, and the guard's, which is older, comes first.
        loop.suspend(100.0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.closed

    loop.run(cancelling())


def test_clocks_run_in_a_task_that_was_cancelled_before(loop: LeapingLoop) -> None:
    """Cleaning up after a cancel, a task may still read a stream; its old cancel is not taken for a new one."""

    async def cleaning_up() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            with pytest.raises(Timeout):
                await read(Source(61.0, WORD, LAST))
        return "cleaned"

    async def cancelling() -> str:
        task = asyncio.create_task(cleaning_up())
        await asyncio.sleep(1)
        task.cancel()
        return await task

    assert loop.run(cancelling()) == "cleaned"


def test_a_source_that_answers_its_cancel_with_a_chunk_is_believed_and_timed_anew(loop: LeapingLoop) -> None:
    async def stubborn() -> AsyncGenerator[LlmChunk, None]:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            yield WORD
        await asyncio.sleep(1)
        yield LAST

    async def reading() -> list[LlmChunk]:
        return [chunk async for chunk in guard_stream(stubborn(), CLOCKS)]

    async def reading_until_cancelled() -> None:
        stream = guard_stream(stubborn(), CLOCKS)
        assert await anext(stream) == WORD
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert loop.run(reading()) == [WORD, LAST]
    loop.run(reading_until_cancelled())
