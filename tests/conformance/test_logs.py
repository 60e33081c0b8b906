"""A persistent topic as a log: what was appended stays, in its order, for every reader, until it is erased."""

import asyncio

import pytest

from tests.conformance.reading import DEADLINE, numbered
from tests.conformance.test_delivery import AWKWARD_BODIES
from tg_base.bus import MAX_MESSAGE_BYTES, Bus, open_bus
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


async def test_a_closed_bus_refuses(bus_url: str, kept: str) -> None:
    async with open_bus(bus_url) as bus:
        await bus.aclose()
        for using in (bus.append(kept, b"", {}), bus.read(kept), bus.erase(kept)):
            with pytest.raises(BusError):
                await using
