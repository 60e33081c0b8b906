"""What waits and what is kept behind it: bounded for each key, and what is made last is not the first to make room."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tg_base.bus.memory import MemoryBus
from tg_gateway.access import Limits
from tg_gateway.dialects import Answer, Background, Keep, Waiting
from tg_gateway.jobs import JobLogs, JobStore, QueueBounds
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.log import label_end
from tg_schema.errors import NotFound
from tg_schema.topics import Topics


def background(name: str, seconds: float = 100.0) -> Background:
    """An answer."""
    return Background(name, b"head", keeps_parts=False, answer=lambda _: Answer(b""), seconds=seconds)


async def take(store: JobStore, name: str) -> Claim:
    claim = Claim(store.logs, store.logs.owner("k"), name)
    await claim.load()
    await claim.take()
    return claim


async def test_what_has_waited_is_not_the_oldest_when_it_is_made() -> None:
    store = JobStore(JobLogs(MemoryBus(), Topics(), key_answers=2))
    await store.put("k", background("a"), Waiting(60.0))
    for name in "bc":
        await store.keep("k", Keep(name, lambda: b"x"))
    # A gateway begins to make it, after some time.
    async with (await take(store, "a")).write(background("a")):
        await store.keep("k", Keep("d", lambda: b"x"))
    assert (await store.of("k").read("a")).head == b"head"
    for name in "bc":
        with pytest.raises(NotFound):
            await store.of("k").read(name)


async def test_what_others_make_of_what_a_gateway_has_put_is_bounded() -> None:
    bus = MemoryBus()
    one, other = (JobStore(JobLogs(bus, Topics(), key_answers=2)) for _ in range(2))
    bounds = QueueBounds(one.logs, Limits(waiting=2, all_waiting=100))
    names = [f"r{number}" for number in range(20)]
    for name in names:
        await bounds.admit("k", name, "text-completion")
        await one.put("k", background(name), Waiting(60.0))
        await other.logs.declare(name, label_end("ended", by=(await take(other, name)).own), b"x")
    # As many as it may keep, as many as may wait, and the newest.
    kept = [name for name in names if await bus.read(Topics().kept(name))]
    assert len(kept) <= 2 + 2 + 1
    assert kept[-1] == names[-1]


async def test_what_is_being_made_is_not_erased_to_make_room() -> None:
    bus = MemoryBus()
    one, maker = (JobStore(JobLogs(bus, Topics(), key_answers=2)) for _ in range(2))
    await one.put("k", background("a"), Waiting(60.0))
    async with (await take(maker, "a")).write(background("a")) as writer:
        one.logs.written.mark("a", waits=False)
        for name in "bcdefgh":
            await one.keep("k", Keep(name, lambda: b"x"))
        assert (await one.of("k").read("a")).head == b"head"
        await writer.end(b"", "ended")
    for name in "ijkl":
        await one.keep("k", Keep(name, lambda: b"x"))
    left = [name for name in "abcdefghijkl" if await bus.read(Topics().kept(name))]
    assert left == ["k", "l"]


async def test_what_is_being_made_when_its_time_is_over_is_erased_after_its_end() -> None:
    bus, now = MemoryBus(), [1000.0]
    one, maker = (JobStore(JobLogs(bus, Topics(), lambda: now[0], longest_run=1000.0)) for _ in range(2))

    async def is_kept(seconds: float) -> bool:
        """Whether its log is there after the next answer is kept, so many seconds later."""
        now[0] += seconds
        await one.keep("other", Keep("next", lambda: b"x"))
        return bool(await bus.read(Topics().kept("a")))

    await one.put("k", background("a", seconds=1.0), Waiting(1.0))
    async with (await take(maker, "a")).write(background("a")) as writer:
        assert await is_kept(3.0)
        assert (await one.of("k").read("a")).outcome == "running"
        assert await is_kept(100.0)
        await writer.end(b"", "ended")
    assert not await is_kept(100.0)


async def test_what_nobody_makes_any_more_is_erased_after_the_longest_run() -> None:
    bus, now = MemoryBus(), [1000.0]
    store = JobStore(JobLogs(bus, Topics(), lambda: now[0], longest_run=100.0))
    await store.put("k", background("a", seconds=1.0), Waiting(1.0))
    await take(store, "a")
    now[0] += 103.0
    await store.keep("k", Keep("b", lambda: b"x"))
    assert not await bus.read(Topics().kept("a"))


async def test_what_has_expired_does_not_stay_behind_what_is_kept_longer() -> None:
    bus, now = MemoryBus(), [1000.0]
    store = JobStore(JobLogs(bus, Topics(), lambda: now[0]))
    for name, seconds in (("long", 5000.0), ("short", 1.0), ("middle", 100.0), ("shorter", 0.5)):
        await store.put("k", background(name, seconds), Waiting(1.0))
        store.logs.written.mark(name, waits=False)
    now[0] += 50.0
    await store.keep("other", Keep("next", lambda: b"x"))
    kept = [name for name in ("long", "short", "middle", "shorter") if await bus.read(Topics().kept(name))]
    assert kept == ["long", "middle"]


async def test_what_others_write_into_a_log_counts_for_who_has_begun_it() -> None:
    bus = MemoryBus()
    one, maker = (JobStore(JobLogs(bus, Topics(), key_bytes=100)) for _ in range(2))
    for name in "ab":
        await one.put("k", background(name), Waiting(60.0))
        one.logs.written.mark(name, waits=False)
        async with (await take(maker, name)).write(background(name)) as writer, asyncio.TaskGroup() as readers:
            reading = aiter(one.of("k").follow(name))
            assert await anext(reading) == b""
            readers.create_task(read_rest(reading))
            await writer.end(b"x" * 80, "ended")
    await one.keep("k", Keep("c", lambda: b"x"))
    assert [name for name in "abc" if await bus.read(Topics().kept(name))] == ["b", "c"]


async def read_rest(steps: AsyncIterator[object]) -> None:
    """Until the end."""
    async for _ in steps:
        pass
