"""A model's failures, seen by its processor -> every requestor: it is left alone by all of them at once."""

from collections.abc import AsyncIterator, Awaitable, Callable
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
from tg_base.protocol import Route
from tg_base.protocol.model_health import MIN_FAILURES
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse, TgError
from tg_schema.errors import BadRequest, RateLimited, Unavailable
from tg_schema.topics import Topics

REQUESTORS = 3


@dataclass
class World:
    """Models a and b, and requestors that carry out the route "r" of both, each with a connection of its own."""

    models: dict[str, UnreliableLlm]
    requestors: list[Requestor]
    first: Route[Any, Any]
    serve: Callable[[UnreliableLlm], Awaitable[object]]

    async def ask_directly(self, **fields: Any) -> TextCompletionResponse:
        """The answer of the first model, without a route."""
        client: Client[Any, Any] = Client(self.requestors[0], self.first)
        whole: TextCompletionResponse = await client.call(TextCompletionRequest(prompt="0", **fields))
        return whole

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

        async def serve(llm: UnreliableLlm) -> None:
            processor = Processor(shared, topics, llm, (queues[llm.model],), models=(llm.model,), grace=0.05)
            await stack.enter_async_context(processor)

        for llm in models.values():
            await serve(llm)
        requestors = []
        for _ in range(REQUESTORS):
            bus = shared if bus_url == "memory://" else await stack.enter_async_context(open_bus(bus_url))
            requestor = Requestor(bus, topics, plans=config.plans)
            requestors.append(await stack.enter_async_context(requestor))
            for queue in queues.values():
                await requestor.until_served(queue)
        yield World(models, requestors, queues["a"], serve)


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


async def cool(world: World) -> None:
    """Let all requestors know that the first model cools down."""
    world.models["a"].error = RateLimited("later", retry_after=60)
    assert await world.ask(0) == "b"
    await until(lambda: world.states() == {("cooling", "rate-limited")})


async def test_an_answer_ends_the_time_for_all_requestors_but_who_was_told_itself(world: World) -> None:
    await cool(world)
    world.models["a"].forget()
    world.models["a"].error = None
    assert (await world.ask_directly()).model == "a"
    await until(lambda: world.states() == {("cooling", "rate-limited"), ("ready", "")})
    assert [await world.ask(number) for number in range(REQUESTORS)] == ["b", "a", "a"]


async def test_one_processor_that_is_well_is_enough(world: World) -> None:
    await cool(world)
    await world.serve(UnreliableLlm("a"))
    await until(lambda: world.states() == {("cooling", "rate-limited"), ("ready", "")})


async def test_an_error_of_the_request_proves_nothing(world: World) -> None:
    await cool(world)
    with pytest.raises(TgError):
        await world.ask_directly(model="another")
    world.models["a"].error = BadRequest("no")
    with pytest.raises(BadRequest):
        await world.ask_directly()
    assert await world.ask(1) == "b"
    assert world.states() == {("cooling", "rate-limited")}
