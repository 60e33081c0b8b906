"""Clients that follow answers in the background: counted before the first part, each key for itself."""

from collections.abc import AsyncGenerator

import pytest

from tg_base.bus.memory import MemoryBus
from tg_gateway.access import Limits
from tg_gateway.jobs import JobLogs, JobStore
from tg_gateway.jobs.log import HEAD, label_end, label_first, label_part
from tg_schema.errors import RateLimited
from tg_schema.topics import Topics

KEYS = ("one", "two", "three")


@pytest.mark.parametrize("ended", [False, True])
async def test_who_follows_is_counted_from_its_first_part_to_its_last(*, ended: bool) -> None:
    bus, topics = MemoryBus(), Topics()
    store = JobStore(JobLogs(bus, topics, lambda: 0.0), Limits(followers=1, all_followers=2))
    for key in KEYS:
        await bus.append(topics.kept(key), b"{}", label_first(HEAD, key, 1.0))
        await bus.append(topics.kept(key), b"part", label_part(0))
        if ended:
            await bus.append(topics.kept(key), b"", label_end("ended"))
    open_streams: list[AsyncGenerator[object, None]] = []

    async def follow(key: str, *, bounded: bool = True) -> object:
        stream = store.of(key, bounded=bounded).follow(key)
        first = await anext(stream)
        open_streams.append(stream)
        return first

    # None of them has read its first part to the end, as a client that is slow.
    assert [await follow("one"), await follow("two")] == [b"part", b"part"]
    for refused in ("one", "three"):
        with pytest.raises(RateLimited, match="follow"):
            await follow(refused)
    assert await follow("one", bounded=False) == b"part"
    await open_streams[0].aclose()
    assert await follow("three") == b"part"
    with pytest.raises(RateLimited):
        await follow("one")
    for stream in open_streams:
        await stream.aclose()
    assert [await follow(key) for key in KEYS[:2]] == [b"part", b"part"]
    for stream in open_streams:
        await stream.aclose()
    await bus.aclose()
