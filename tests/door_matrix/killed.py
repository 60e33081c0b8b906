"""The columns for processes that are killed: all doors at once, over a real broker, before a model that counts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from aiohttp import ClientSession

from tests.connected.pipeline import Part, Pipeline
from tests.door_matrix.cell import describe_failure
from tests.door_matrix.door import Door
from tests.door_matrix.doors import DOORS
from tests.door_matrix.visit import Visit, visiting
from tests.fakes.live_openai import MODEL, LiveOpenAi, told

PROCESSOR_KILLED, GATEWAY_KILLED = KILLED = ("processor killed", "gateway killed")
DEATH_SECONDS: Final = 10.0
"""Within which a death is noticed: 3.5 s of silence, and what a busy machine adds."""

Visits = dict[str, tuple[Door, Visit]]
"""By the question, which is the model's prompt."""
Seen = dict[tuple[str, str], str]
"""(door, column) -> what the table says."""


async def kill_both(line: Pipeline, model: LiveOpenAi) -> Seen:
    """Kill a processor, then a gateway, under a client of each door."""
    gateway, first = await asyncio.gather(line.start("gateway"), line.start("text-completion"))
    seen = await _kill_processor(line, model, gateway, first)
    return seen | await _kill_gateway(line, model, gateway)


async def _kill_processor(line: Pipeline, model: LiveOpenAi, gateway: Part, first: Part) -> Seen:
    """Another one starts in time for the answers of which nothing was sent."""
    async with _visiting_all(gateway, line.flow, PROCESSOR_KILLED) as visits:
        await _begin(model, visits)
        await line.start("text-completion")
        first.process.kill()
        again = sum(door.way == "body" for door, _ in visits.values())
        await model.until(lambda: len(model.generations) == len(visits) + again, DEATH_SECONDS)
        model.finish.set()
        for _, visit in visits.values():
            await visit.finish()
    model.finish.clear()
    return {(door.name, PROCESSOR_KILLED): _describe_death(door, visit) for door, visit in visits.values()}


def _describe_death(door: Door, visit: Visit) -> str:
    told(visit.text, whole=visit.whole)
    if door.way != "body":
        return describe_failure(door, visit)
    assert (visit.status, visit.whole) == (200, True), visit
    return "asked again, 200"


async def _kill_gateway(line: Pipeline, model: LiveOpenAi, gateway: Part) -> Seen:
    """What it asked for stops."""
    async with _visiting_all(gateway, line.flow, GATEWAY_KILLED) as visits:
        await _begin(model, visits)
        gateway.process.kill()
        for door, visit in visits.values():
            await visit.finish()
            assert visit.broken, door
            assert not visit.whole, door
        await model.until(lambda: not model.running, DEATH_SECONDS)
    return {(door.name, GATEWAY_KILLED): "broken end, model stops" for door, _ in visits.values()}


@asynccontextmanager
async def _visiting_all(gateway: Part, flow: str, why: str) -> AsyncIterator[Visits]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(ClientSession(gateway.url))
        visits = {}
        for number, door in enumerate(DOORS):
            question = f"{why} {number}"
            visits[question] = (
                door,
                await stack.enter_async_context(visiting(door, http, flow, question, model=MODEL)),
            )
        yield visits


async def _begin(model: LiveOpenAi, visits: Visits) -> None:
    """Every client has text, or waits for a whole answer that is being made."""
    try:
        await model.until(lambda: all(model.of(question) for question in visits), DEATH_SECONDS)
    except TimeoutError:
        raise AssertionError([visit for question, visit in visits.items() if not model.of(question)]) from None
    for door, visit in visits.values():
        if door.way != "body":
            await visit.begin()
