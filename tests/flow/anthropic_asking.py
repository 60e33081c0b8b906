"""A gateway that knows its model's features, and Anthropic's own SDK in front of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from anthropic import Anthropic, AsyncAnthropic, DefaultAsyncHttpxClient, DefaultHttpxClient

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.messages_llm import MessagesLlm
from tests.fakes.turns_llm import Turn
from tests.flow.open_gateway import ON_ANY_PORT, QUICK, Opened, open_gateway
from tg_base.config import GatewayConfig

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
MODEL = "counting"
HI: Any = {"role": "user", "content": "hi"}


@dataclass
class Asking:
    """The gateway, the SDK's clients of it, and the model behind it."""

    it: Opened
    sdk: AsyncAnthropic
    sync: Anthropic
    llm: MessagesLlm

    async def ask(self, turns: Any = (HI,), **more: Any) -> Any:
        """A whole answer."""
        return await self.sdk.messages.create(model=MODEL, max_tokens=100, messages=list(turns), **more)

    async def post(self, body: Any, path: str = MESSAGES, **headers: str) -> tuple[int, dict[str, Any], Any]:
        """Status, JSON and headers of an answer that is not streamed."""
        async with self.it.http.post(path, json=body, headers=headers) as response:
            return response.status, await response.json(), response.headers


async def until_ready(it: Opened) -> None:
    """Return once the gateway knows its processors."""
    while True:
        async with it.http.get("/ready") as response:
            if response.status == 200:
                return


@asynccontextmanager
async def open_asking(
    *turns: Turn,
    llm: MessagesLlm | None = None,
    counting: CountingLlm | None = None,
    config: GatewayConfig = ON_ANY_PORT,
    key: str = "any",
) -> AsyncIterator[Asking]:
    """A gateway whose model says these turns, one after the other; or `counting` answers."""
    llm = llm or MessagesLlm(*turns)
    llm.tries = 1
    instead = None if counting else llm
    async with open_gateway(config, llm=counting, instead=instead, timing=QUICK) as it:
        await until_ready(it)
        # Over plain HTTP they need no certificates, which take 20 ms to load.
        given: Any = {"api_key": key, "base_url": it.gateway.url, "max_retries": 0}
        sdk = AsyncAnthropic(**given, http_client=DefaultAsyncHttpxClient(verify=False))
        with Anthropic(**given, http_client=DefaultHttpxClient(verify=False)) as sync:
            async with sdk:
                yield Asking(it, sdk, sync, llm)
