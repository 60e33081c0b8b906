"""Responses in the background before two gateways: asking, following and polling them with OpenAI's own SDK."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from openai import APIConnectionError, AsyncOpenAI

from tests.fakes.counting_llm import CountingLlm, SteppedLlm, release
from tests.flow.open_gateway import Opened, another_gateway, open_gateway
from tests.flow.openai_sdk import sdk
from tg_gateway.access import Limits
from tg_gateway.app import Gateway

DEADLINE = 20.0
MANY = "100000"
RUNNING = {"queued", "in_progress"}
"""Statuses of a response that has not ended."""


@dataclass
class Pair:
    """A model that says a word for each step, and two gateways: `one` that is asked, and any `other`."""

    llm: CountingLlm
    opened: Opened
    one: AsyncOpenAI
    other: AsyncOpenAI

    def step(self, words: int) -> None:
        """Let the model say more words."""
        release(self.llm.step, words)


def client_of(gateway: Gateway) -> AsyncOpenAI:
    """One that does not ask again by itself."""
    return sdk(gateway, timeout=DEADLINE)


@asynccontextmanager
async def open_pair(limits: Limits | None = None) -> AsyncIterator[Pair]:
    """Both on one memory bus."""
    llm = SteppedLlm()
    async with (
        open_gateway(llm=llm, limits=limits) as opened,
        another_gateway(opened.bus, limits=limits) as second,
        client_of(opened.gateway) as one,
        client_of(second) as other,
    ):
        yield Pair(llm, opened, one, other)


async def poll(client: AsyncOpenAI, name: str, passing: Collection[str] = RUNNING) -> Any:
    """The response when it has ended, or has left these statuses, as the SDK's users wait for it."""
    async with asyncio.timeout(DEADLINE):
        while True:
            response = await client.responses.retrieve(name)
            if response.status not in passing:
                return response
            await asyncio.sleep(0.01)


def show(event: dict[str, Any]) -> dict[str, Any]:
    """The response of an event."""
    return dict(event["response"])


async def begin(stream: Any) -> str:
    """The id of a response, from its first event."""
    first = await asyncio.wait_for(anext(aiter(stream)), DEADLINE)
    assert first.type == "response.created"
    return str(first.response.id)


async def until_told(stream: Any) -> None:
    """Until the first piece of the text."""
    async with asyncio.timeout(DEADLINE):
        async for event in stream:
            if event.type == "response.output_text.delta":
                return


async def gather(stream: Any) -> list[dict[str, Any]]:
    """All events of a stream, which is closed behind them."""
    async with asyncio.timeout(DEADLINE), stream:
        return [event.to_dict() async for event in stream]


async def gather_until_cut(stream: Any) -> list[dict[str, Any]]:
    """All events of a stream that has no orderly end."""
    told = list[dict[str, Any]]()
    async with asyncio.timeout(DEADLINE), stream:
        try:
            async for event in stream:
                told.append(event.to_dict())
        except APIConnectionError:
            return told
    raise AssertionError("the stream has ended in order")
