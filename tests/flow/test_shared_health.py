"""A model's failures, seen by its processor -> every requestor: it is left alone by all of them at once."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from tests.fakes.unreliable_llm import UnreliableLlm
from tests.until import until
from tg_base.bus import open_bus
from tg_base.client import Client, Requestor
from tg_base.config import Config, RouteConfig, ServiceConfig, TextCompletionConfig
from tg_base.protocol.model_health import MIN_FAILURES
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION, TextCompletionRequest
from tg_schema.errors import RateLimited, Unavailable
from tg_schema.topics import Topics

REQUESTORS = 3


@dataclass
class World:
    """Models a and b, and requestors that carry out the route "r" of both, each with a connection of its own."""

    models: dict[str, UnreliableLlm]
    requestors: list[Requestor]

    async def ask(self, number: int) -> str:
        """Who has answered the requestor of this number."""
        client: Client[Any, Any] = Client(self.requestors[number], self.requestors[number].routes.named["r"].entry)
        return str((await client.call(TextCompletionRequest(prompt="0"))).model)

    def states(self) -> set[tuple[str, str]]:
        """How the requestors explain what they do with the first model."""
        first = [requestor.routes.explain("r")[0] for requestor in self.requestors]
        return {(each.state, each.reason) for each in first}


@pytest.fixture
async def world(bus_url: str) -> AsyncIterator[World]:
    models = {name: UnreliableLlm(name) for name in "ab"}
    flows: dict[str, dict[str, ServiceConfig]] = {
        f"{name}-{uuid4().hex}": {"text-completion": TextCompletionConfig(model=name)} for name in models
    }
    config = Config(flows=flows, model_routes={"r": RouteConfig(models=tuple(models))})
    queues = {str(route.model): route for route in config.routes(TEXT_COMPLETION.name)}
    topics = Topics()
    async with AsyncExitStack() as stack:
        shared = await stack.enter_async_context(open_bus(bus_url))
        for name, llm in models.items():
            processor = Processor(shared, topics, llm, (queues[name],), models=(name,), grace=0.05)
            await stack.enter_async_context(processor)
        requestors = []
        for _ in range(REQUESTORS):
            bus = shared if bus_url == "memory://" else await stack.enter_async_context(open_bus(bus_url))
            requestor = Requestor(bus, topics, plans=config.plans)
            requestors.append(await stack.enter_async_context(requestor))
            for queue in queues.values():
                await requestor.until_served(queue)
        yield World(models, requestors)


async def test_who_asks_next_knows_what_the_first_was_told(world: World) -> None:
    a = world.models["a"]
    a.error = RateLimited("later", retry_after=60)
    assert await world.ask(0) == "b"
    await until(lambda: world.states() == {("cooling", "rate-limited")})
    assert [await world.ask(number) for number in range(REQUESTORS)] == ["b"] * REQUESTORS
    assert len(a.requests) == 1


async def test_failures_of_all_requestors_count_together(world: World) -> None:
    a = world.models["a"]
    a.error = Unavailable("dead")
    for number in range(MIN_FAILURES):
        assert await world.ask(number) == "b"
    await until(lambda: world.states() == {("cooling", "unavailable")})
    assert [await world.ask(number) for number in range(REQUESTORS) for _ in range(20)] == ["b"] * REQUESTORS * 20
    assert len(a.requests) == MIN_FAILURES
