"""The Responses API of a real gateway, asked by OpenAI's own SDK: a scripted model behind the bus."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from openai import AsyncOpenAI

from tests.fakes.turns_llm import Turn, TurnsLlm
from tests.flow.open_gateway import ON_ANY_PORT, Opened, open_gateway
from tests.flow.openai_sdk import sdk
from tg_base.bus import Bus
from tg_base.config import GatewayConfig
from tg_schema import COMMON_FEATURES
from tg_schema.features import Feature

MODEL = "counting"
"""The name that the gateway's configuration has."""
PLAIN_FEATURES: frozenset[Feature] = COMMON_FEATURES | {"developer", "reasoning_turns"}
"""Those of every provider that knows nothing beyond them."""
FEATURES: frozenset[Feature] = PLAIN_FEATURES | {
    "reasoning",
    "parallel_tool_calls",
    "allowed_tools",
    "strict_tools",
    "count_tokens",
}


@dataclass
class OpenedResponses:
    """What a test needs of it."""

    llm: TurnsLlm
    client: AsyncOpenAI
    opened: Opened


@asynccontextmanager
async def open_responses(
    *turns: Turn,
    features: frozenset[Feature] = FEATURES,
    llm: TurnsLlm | None = None,
    config: GatewayConfig = ON_ANY_PORT,
    bus: Bus | None = None,
) -> AsyncIterator[OpenedResponses]:
    """A gateway with a model that says these turns, or with another; the client does not ask again by itself."""
    llm = llm or TurnsLlm(*turns, features=features, model=MODEL)
    async with (
        open_gateway(config, instead=llm, bus=bus) as opened,
        sdk(opened.gateway) as client,
    ):
        yield OpenedResponses(llm, client, opened)
