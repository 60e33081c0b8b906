"""Two gateways on one bus, whose LMTP streams each may read on in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession

from tests.doors.open_lmtp import Lmtp
from tests.fakes.token_llm import END, TokenLlm
from tests.flow.open_gateway import ON_ANY_PORT, PROMPTS, QUEUES, TEXTS, Opened, open_gateway, until_listed
from tests.until import until
from tg_base.bus import Bus
from tg_base.client import Requestor
from tg_base.config import GatewayConfig
from tg_gateway.access import Limits
from tg_gateway.app import Gateway
from tg_schema.topics import Topics

TOPICS = Topics()


WORD = [72, 101, 108, 108, 111, 33]


@dataclass
class Pair:
    """A model that says a token for each step, and two gateways."""

    llm: TokenLlm
    opened: Opened
    other: ClientSession

    def step(self, tokens: int) -> None:
        """Let the model go on."""
        assert self.llm.step is not None
        for _ in range(tokens):
            self.llm.step.release()

    @asynccontextmanager
    async def connect(self, *, other: bool = False, key: str = "") -> AsyncIterator[Lmtp]:
        """A client, which is told kinds of errors."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with (self.other if other else self.opened.http).ws_connect("/lmtp", headers=headers) as socket:
            client = Lmtp(socket)
            await client.send("HELLO", accept=["ERRORS"])
            await client.item()
            yield client


@asynccontextmanager
async def open_pair(
    config: GatewayConfig = ON_ANY_PORT,
    limits: Limits | None = None,
    bus: Bus | None = None,
    other_limits: Limits | None = None,
) -> AsyncIterator[Pair]:
    """Both on one memory bus."""
    llm = TokenLlm()
    llm.step = asyncio.Semaphore(0)
    async with (
        open_gateway(config, llm=llm, limits=limits, bus=bus) as opened,
        Requestor(opened.bus, TOPICS, queues=QUEUES) as requestor,
        Gateway(config, requestor, TEXTS + PROMPTS, limits=other_limits or limits) as second,
        ClientSession(second.url) as other,
    ):
        if not config.keys:
            await asyncio.gather(until_listed(opened.http), until_listed(other))
        await until(lambda: bool(requestor.presence.serving(TEXTS[0].request)))
        yield Pair(llm, opened, other)


async def read_tokens(client: Lmtp, count: int) -> list[dict[str, Any]]:
    """So many items."""
    items: list[dict[str, Any]] = []
    while len(items) < count:
        items += (await client.read())[1]
    assert len(items) == count
    return items


def told(items: list[dict[str, Any]]) -> list[tuple[int, int, str | None]]:
    return [(each["seq"], each["token"], each["finish_reason"]) for each in items]


WHOLE = [(number, token, None) for number, token in enumerate(WORD, 1)] + [(7, END, "stop")]
