"""A persistent topic as a log: what was appended stays, in its order, for every reader, until it is erased."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.conformance.reading import DEADLINE, numbered
from tests.conformance.test_delivery import AWKWARD_BODIES
from tg_base.bus import MAX_MESSAGE_BYTES, Bus, Entry, open_bus
from tg_schema.errors import BadRequest, BusError, TooLarge


async def read(bus: Bus, topic: str) -> list[bytes]:
    async with asyncio.timeout(DEADLINE):
        return [entry.body for entry in await bus.read(topic)]


async def test_entries_keep_their_order_and_stay(bus: Bus, kept: str) -> None:
    for body in numbered(5):
        await bus.append(kept, body, {})
    assert await read(bus, kept) == numbered(5)
    await bus.append(kept, b"more", {})
    assert await read(bus, kept) == [*numbered(5), b"more"]


async def test_any_bytes_and_properties_are_read_as_they_were(bus: Bus, kept: str) -> None:
    properties = {"key": 'ä"\n\u2028\U0001f600', "empty": ""}
    for body in AWKWARD_BODIES:
        await bus.append(kept, body, properties)
    entries = await bus.read(kept)
    assert [(entry.body, dict(entry.properties)) for entry in entries] == [
        (body, properties) for body in AWKWARD_BODIES
    ]


async def test_what_was_never_written_is_empty(bus: Bus, kept: str) -> None:
    assert await read(bus, kept) == []
    await bus.append(kept, b"now", {})
    assert await read(bus, kept) == [b"now"]


async def test_several_may_erase_a_log_at_once(bus: Bus, kept: str) -> None:
    await bus.append(kept, b"first", {})
    # As gateways do: one deletes what another one still writes, and both erase it.
    await asyncio.gather(*(bus.erase(kept) for _ in range(6)))
    assert await bus.read(kept) == ()


async def test_nothing_of_an_erased_log_is_read(bus: Bus, kept: str) -> None:
    await bus.append(kept, b"before", {})
    await bus.erase(kept)
    assert await read(bus, kept) == []
    await bus.erase(kept)
    await bus.append(kept, b"after", {})
    assert await read(bus, kept) == [b"after"]


async def test_the_largest_entry_is_read_and_a_larger_one_refused(bus: Bus, kept: str) -> None:
    largest = bytes(MAX_MESSAGE_BYTES)
    await bus.append(kept, largest, {})
    with pytest.raises(TooLarge):
        await bus.append(kept, largest + b"!", {})
    assert await read(bus, kept) == [largest]


@pytest.mark.parametrize("name", ["", "log", "non-persistent://tg/flow/log"])
async def test_what_is_no_log_is_refused(bus: Bus, name: str) -> None:
    for using in (bus.append(name, b"", {}), bus.read(name), bus.erase(name)):
        with pytest.raises(BadRequest):
            await using
    for opening in (bus.open_log(name), bus.follow(name, "1")):
        with pytest.raises(BadRequest):
            await opening.__aenter__()


async def test_a_closed_bus_refuses(bus_url: str, kept: str) -> None:
    async with open_bus(bus_url) as bus:
        await bus.aclose()
        for using in (bus.append(kept, b"", {}), bus.read(kept), bus.erase(kept)):
            with pytest.raises(BusError):
                await using
        for opening in (bus.open_log(kept), bus.follow(kept, "1")):
            with pytest.raises(BusError):
                await opening.__aenter__()


async def gather(entries: AsyncIterator[Entry], count: int) -> list[bytes]:
    """The next entries of a log that is followed."""
    async with asyncio.timeout(DEADLINE):
        return [(await anext(entries)).body for _ in range(count)]


async def test_a_log_is_followed_from_any_entry(bus: Bus, kept: str) -> None:
    positions = [await bus.append(kept, body, {}) for body in numbered(4)]
    assert [entry.position for entry in await bus.read(kept)] == positions
    assert len(set(positions)) == 4
    for place, position in enumerate(positions):
        async with bus.follow(kept, position) as entries:
            await bus.append(kept, b"later", {})
            rest = [*numbered(4)[place + 1 :], *[b"later"] * (place + 1)]
            assert await gather(entries, len(rest)) == rest


async def test_a_wait_for_more_can_be_cancelled(bus: Bus, kept: str) -> None:
    position = await bus.append(kept, b"0", {})
    async with bus.follow(kept, position) as entries:
        for body in numbered(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await anext(entries)
            position = await bus.append(kept, body, {"body": body.decode()})
            entry = await asyncio.wait_for(anext(entries), DEADLINE)
            assert entry == Entry(body, {"body": body.decode()}, position)


async def test_an_open_log_takes_entries_beside_others(bus: Bus, kept: str) -> None:
    position = await bus.append(kept, b"first", {})
    async with bus.open_log(kept) as log, bus.follow(kept, position) as one, bus.follow(kept, position) as other:
        for body in numbered(5):
            await log.append(body, {"x": "y"})
        await bus.append(kept, b"beside", {})
        await log.append(b"last", {})
        for entries in (one, other):
            assert await gather(entries, 7) == [*numbered(5), b"beside", b"last"]
    assert await read(bus, kept) == [b"first", *numbered(5), b"beside", b"last"]
    async with bus.open_log(kept) as log:
        await log.append(b"again", {})
    assert (await read(bus, kept))[-1] == b"again"


async def test_who_follows_an_erased_log_comes_to_its_end(bus: Bus, kept: str) -> None:
    position = await bus.append(kept, b"first", {})
    async with bus.follow(kept, position) as entries:
        await bus.erase(kept)
        for _ in range(2):
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(anext(entries), DEADLINE)


@pytest.mark.parametrize("position", ["", "x", "-1", "1:", "é"])
async def test_what_is_no_position_is_refused(bus: Bus, kept: str, position: str) -> None:
    await bus.append(kept, b"", {})
    with pytest.raises(BadRequest):
        async with bus.follow(kept, position):
            pass


async def test_who_reads_on_behind_the_last_entry_of_an_erased_log_is_told_of_its_end(bus: Bus, kept: str) -> None:
    position = await bus.append(kept, b"last", {})
    await bus.erase(kept)
    # As by a writer that has not heard of it.
    await bus.append(kept, b"late", {})
    async with asyncio.timeout(DEADLINE), bus.follow(kept, position) as entries:
        with pytest.raises(StopAsyncIteration):
            await anext(entries)
