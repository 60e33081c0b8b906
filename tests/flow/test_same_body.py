"""`attach = "same-body"`: a client without a key, which was cut and sends its request again, gets the same answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.failing_llm import FailingLlm
from tests.flow.kept_streams import DEADLINE, ask_chat, ask_messages
from tests.flow.narrow_gateway import digest_of, token_of
from tests.flow.test_repeated_requests import Asking, ask_responses, read_until, told
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import ApiKey, Config, GatewayConfig, TextCompletionConfig
from tg_base.server import Processor
from tg_gateway.app import Gateway
from tg_gateway.dialects import IdempotencyKey, digest_request
from tg_gateway.jobs.log import LEFT, kind_of

ALICE = {"Authorization": f"Bearer {token_of('alice')}"}
BOB = {"Authorization": f"Bearer {token_of('bob')}"}
KEYS = tuple(
    ApiKey(name=name, sha256=digest_of(name), attach="same-body" if name == "alice" else None)
    for name in ("alice", "bob")
)


@dataclass
class Stage:
    """A model, and a client of each of two gateways on one bus."""

    bus: MemoryBus
    config: Config
    llm: CountingLlm
    http: tuple[ClientSession, ClientSession]

    async def ask(self, gateway: int, path: str, body: bytes, enough: Any = None, **headers: str) -> bytes:
        """What comes until it is enough, where the client leaves, or until the end."""
        async with asyncio.timeout(DEADLINE), self.http[gateway].post(path, data=body, headers=headers) as response:
            return await read_until(response, enough or (lambda _: False))

    async def until_left(self, path: str, body: bytes, owner: str = "anybody") -> None:
        """Until the gateway has said that the first client has gone."""
        digest = await digest_request(f"/{path}", body)
        topic = self.config.topics.kept(IdempotencyKey("", owner, digest, digest).name)

        head = (await self.bus.read(topic))[0]
        async with asyncio.timeout(DEADLINE), self.bus.follow(topic, head.position) as entries:
            while kind_of(await anext(entries)) != LEFT:
                pass


@asynccontextmanager
async def open_stage(
    llm: CountingLlm | None = None, *, flow: bool = True, keys: tuple[ApiKey, ...] = ()
) -> AsyncIterator[Stage]:
    """Both gateways; `flow`: whether the flow attaches."""
    table = TextCompletionConfig(model="counting", attach="same-body" if flow else None)
    bus, config, model = MemoryBus(), Config(flows={"default": {"text-completion": table}}), llm or CountingLlm()
    model.step = asyncio.Semaphore(0)
    routes = config.routes("text-completion")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(Processor(bus, config.topics, model, routes, models=(model.model,), grace=0.05))
        opened = list[ClientSession]()
        for _ in range(2):
            queues = tuple(route.request for route in routes)
            requestor = await stack.enter_async_context(Requestor(bus, config.topics, queues=queues))
            settings = GatewayConfig(port=0, drain=0.05, keys=keys, auth="on" if keys else "auto")
            gateway = await stack.enter_async_context(Gateway(settings, requestor, routes))
            opened.append(await stack.enter_async_context(ClientSession(gateway.url)))
        yield Stage(bus, config, model, (opened[0], opened[1]))
    await bus.aclose()


def encode(asked: tuple[str, dict[str, Any]], **fields: Any) -> tuple[str, bytes]:
    path, body = asked
    return path, json.dumps({**body, **fields}).encode()


def step(it: Stage, words: int) -> None:
    assert it.llm.step is not None
    for _ in range(words):
        it.llm.step.release()


@pytest.mark.parametrize("asking", [ask_messages, ask_responses])
async def test_who_was_cut_gets_the_same_answer_also_without_stream(asking: Asking) -> None:
    async with open_stage() as it:
        path, body = encode(asking("4"))
        step(it, 2)
        assert told(await it.ask(0, path, body, told))
        await it.until_left(path, body)
        joined = asyncio.create_task(it.ask(1, path, body))
        step(it, 2)
        assert b"3 " in await joined
        _, whole = encode(asking("4"), stream=False)
        assert b"0 1 2 3 " in await it.ask(0, path, whole)
        assert len(it.llm.requests) == 1


async def test_beside_a_client_that_reads_another_one_has_an_answer_of_its_own() -> None:
    async with open_stage() as it:
        path, body = encode(ask_chat("2"))
        first = asyncio.create_task(it.ask(0, path, body))
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        second = asyncio.create_task(it.ask(1, path, body))
        await until(lambda: len(it.llm.requests) == 2)
        step(it, 4)
        one, other = await first, await second
        assert (b"1 " in one, b"1 " in other, one == other) == (True, True, False)
        assert len(it.llm.requests) == 2


async def test_what_has_failed_is_asked_for_again() -> None:
    async with open_stage(FailingLlm()) as it:
        path, body = encode(ask_chat("1"))
        for number in range(1, 4):
            step(it, 1)
            assert b"error" in await it.ask(number % 2, path, body)
            assert len(it.llm.requests) == number


async def test_a_key_attaches_for_itself_alone() -> None:
    async with open_stage(flow=False, keys=KEYS) as it:
        path, body = encode(ask_chat("1"))
        step(it, 8)
        first = await it.ask(0, path, body, **ALICE)
        await it.until_left(path, body, "alice")
        assert (await it.ask(1, path, body, **ALICE)) == first
        assert len(it.llm.requests) == 1
        for asked in (2, 3):
            assert b"0 " in await it.ask(1, path, body, **BOB)
            assert len(it.llm.requests) == asked
        assert (await it.ask(1, path, body, **ALICE, **{"Idempotency-Key": "k"})) != first
        assert len(it.llm.requests) == 4
