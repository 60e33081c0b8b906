"""What the tests of usage ask, and the records that are written for it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.fakes.openai_server import OpenAiServer
from tests.flow.open_gateway import CONFIG, Opened, open_gateway
from tg_base.bus import Bus
from tg_base.config import ApiKey, GatewayConfig
from tg_base.protocol import RequestHeaders, StreamKey
from tg_base.server import ACCOUNT, UsageAccount
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_schema import decode
from tg_schema.usage_record import UsageRecord

TOKEN = {"Authorization": "Bearer secret"}
KEY = ApiKey(name="shop", sha256=hashlib.sha256(b"secret").hexdigest(), customer="acme", tags=("web", "eu"))
KEYED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))


async def read_records(bus: Bus, count: int) -> list[UsageRecord]:
    """The next records of the bus, as the reader of usage gets them; none of them is delivered again."""
    found: list[UsageRecord] = []
    async with asyncio.timeout(20), bus.subscribe(CONFIG.topics.usage, "usage") as deliveries:
        while len(found) < count:
            delivery = await anext(deliveries)
            found += [decode(UsageRecord, line) for line in delivery.body.split(b"\n")]
            delivery.ack()
    return found


def record_here() -> list[UsageRecord]:
    """What the providers that this task asks itself record from now on."""
    records: list[UsageRecord] = []
    ACCOUNT.set(UsageAccount(RequestHeaders(StreamKey("s", 2)), "f", 0, 0, records.append))
    return records


@asynccontextmanager
async def open_provider(server: OpenAiServer, **options: Any) -> AsyncIterator[Opened]:
    """A gateway that wants a key, before a provider with OpenAI's API."""
    given = OpenAiOptions(base_url=server.url, key_variable="", upstream_model=server.model, **options)
    provider = await OpenAiCompatible.open("counting", given)
    async with open_gateway(KEYED, instead=provider) as opened:
        yield opened


async def complete(opened: Opened, **body: Any) -> Any:
    """The answer of OpenAI's door, whole."""
    asked = {"model": "counting", "messages": [{"role": "user", "content": "Say hello."}], **body}
    async with opened.http.post(
        "v1/chat/completions", json=asked, headers={**TOKEN, "X-Request-Id": "r-1"}
    ) as response:
        return await response.json()
