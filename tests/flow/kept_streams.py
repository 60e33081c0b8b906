"""Streams that are kept, before two gateways on one bus: how they are asked for, and read on."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import ClientPayloadError, ClientResponse, ClientSession

from tests.fakes.counting_llm import CountingLlm, release
from tests.fakes.scripted_agent import ScriptedAgent
from tests.flow.open_gateway import ON_ANY_PORT, another_gateway, open_gateway
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.config import Config, GatewayConfig, TextCompletionConfig
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_gateway.access import Limits
from tg_schema import AGENT
from tg_schema.topics import Topics

DEADLINE: Final = 20.0
KEEP: Final = {"X-Tokengrid-Keep": "10m"}
MANY: Final = "100000"
_EVENT: Final = re.compile(rb"id: ([0-9]+)\n.*?\n\n", re.DOTALL)


def ask_native(prompt: str) -> tuple[str, dict[str, Any]]:
    """Our own protocol, by the short path."""
    return "api/v1/text-completion", {"prompt": prompt, "streaming": True}


def ask_flow(prompt: str) -> tuple[str, dict[str, Any]]:
    """Our own protocol, by the path that names the flow."""
    return "api/v1/flow/default/service/text-completion", {"prompt": prompt, "streaming": True}


def ask_chat(prompt: str) -> tuple[str, dict[str, Any]]:
    """OpenAI's chat."""
    turns = [{"role": "user", "content": prompt}]
    return "v1/chat/completions", {
        "model": "counting",
        "messages": turns,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def ask_messages(prompt: str) -> tuple[str, dict[str, Any]]:
    """Anthropic's Messages."""
    turns = [{"role": "user", "content": prompt}]
    return "v1/messages", {"model": "counting", "messages": turns, "stream": True, "max_tokens": 9}


DOORS: Final = (ask_native, ask_flow, ask_chat, ask_messages)


@dataclass
class Pair:
    """A model that says a word for each step, and a client of each of two gateways."""

    llm: CountingLlm
    one: ClientSession
    other: ClientSession

    def step(self, words: int) -> None:
        """Let the model say more words."""
        release(self.llm.step, words)


@asynccontextmanager
async def open_pair(
    config: GatewayConfig = ON_ANY_PORT, llm: CountingLlm | None = None, limits: Limits | None = None
) -> AsyncIterator[Pair]:
    """Both on one memory bus."""
    llm = llm or CountingLlm()
    llm.step = asyncio.Semaphore(0)
    async with (
        open_gateway(config, llm=llm, limits=limits) as opened,
        another_gateway(opened.bus, config, limits=limits) as second,
        ClientSession(second.url) as other,
    ):
        yield Pair(llm, opened.http, other)


@asynccontextmanager
async def open_keeping(llm: CountingLlm, limits: Limits | None = None) -> AsyncIterator[ClientSession]:
    """A gateway whose flow keeps what can be kept."""
    config = Config(flows={"default": {"text-completion": TextCompletionConfig(model="counting", keep=9)}})
    routes = config.routes("text-completion")
    async with (
        aclosing(MemoryBus()) as bus,
        Processor(bus, config.topics, llm, routes, models=(llm.model,), grace=0.05),
        another_gateway(bus, ON_ANY_PORT, routes, limits) as gateway,
        ClientSession(gateway.url) as http,
    ):
        yield http


@asynccontextmanager
async def open_agent_pair(agent: ScriptedAgent) -> AsyncIterator[tuple[ClientSession, ClientSession]]:
    """A client of each of two gateways before an agent."""
    topics = Topics()
    spoken = topics.request("default", AGENT.name), topics.response("default", AGENT.name)
    route = Route("default", AGENT, *spoken, plain=False)
    async with (
        aclosing(MemoryBus()) as bus,
        Processor(bus, topics, agent, (route,), grace=0.05),
        open_two(bus, (route,)) as opened,
    ):
        yield opened


@asynccontextmanager
async def open_two(
    bus: Bus, routes: tuple[Route[Any, Any], ...], config: GatewayConfig = ON_ANY_PORT
) -> AsyncIterator[tuple[ClientSession, ClientSession]]:
    """A client of each of two gateways with these routes."""
    async with (
        another_gateway(bus, config, routes) as one,
        another_gateway(bus, config, routes) as other,
        ClientSession(one.url) as http,
        ClientSession(other.url) as other_http,
    ):
        yield http, other_http


class Reader:
    """One client of a stream.

    Attributes:
        name: the stream's id.
        got: all that has come.
        over: whether the stream has ended without further events.
    """

    def __init__(self, response: ClientResponse) -> None:
        self.name = response.headers.get("X-Stream-Id", "")
        self.got = b""
        self.over = response.status == 204
        self._response = response

    @property
    def events(self) -> bytes:
        """The numbered events that have come whole, as they came."""
        return b"".join(found[0] for found in _EVENT.finditer(self.got))

    @property
    def numbers(self) -> list[int]:
        """The numbers of these events."""
        return [int(found[1]) for found in _EVENT.finditer(self.got)]

    async def _read(self) -> bool:
        """Whether more has come; otherwise the connection has ended, in order or not."""
        try:
            more = await asyncio.wait_for(self._response.content.readany(), DEADLINE)
        except ClientPayloadError:
            return False
        self.got += more
        return bool(more)

    async def until(self, text: bytes) -> None:
        """Until a text has come."""
        await self.until_true(lambda: text in self.got)

    async def until_true(self, true: Callable[[], bool]) -> None:
        """Until what has come is enough."""
        while not true():
            assert await self._read(), self.got

    async def until_events(self, count: int) -> None:
        """Until so many events have come, or the connection has ended."""
        while len(self.numbers) < count and await self._read():
            pass

    async def until_end(self) -> bytes:
        """Until the connection has ended; all events."""
        while await self._read():
            pass
        return self.events


async def begin(
    stack: AsyncExitStack, http: ClientSession, asked: tuple[str, Mapping[str, Any]], **headers: str
) -> Reader:
    """Ask for a stream that is kept."""
    path, body = asked
    response = await stack.enter_async_context(http.post(path, json=body, headers=KEEP | headers))
    assert response.status == 200, await response.text()
    return Reader(response)


async def resume(
    stack: AsyncExitStack, http: ClientSession, name: str, after: int = -1, *, header: bool = False
) -> Reader:
    """Read a stream on, as a new client."""
    query, headers = ({}, {"Last-Event-ID": str(after)}) if header else ({"offset": str(after)}, {})
    response = await stack.enter_async_context(http.get(f"v1/streams/{name}", params=query, headers=headers))
    assert response.status in {200, 204}, await response.text()
    return Reader(response)


async def read_all(http: ClientSession, name: str, after: int = -1) -> bytes:
    """All events of a stream, until its end."""
    async with AsyncExitStack() as stack:
        return await (await resume(stack, http, name, after)).until_end()
