"""OpenAI's SDK before a gateway of ours, unmodified and without retries."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from tests.flow.open_gateway import Opened, open_gateway
from tg_gateway.app import Gateway

MODEL: Final = "counting"
"""The model of `open_gateway`."""


def sdk(gateway: Gateway, key: str = "any", **options: Any) -> AsyncOpenAI:
    """The asynchronous client; enter it. Over plain HTTP it needs no certificates, which take 20 ms to load."""
    http = DefaultAsyncHttpxClient(verify=False)
    return AsyncOpenAI(base_url=f"{gateway.url}v1", api_key=key, http_client=http, **{"max_retries": 0, **options})


def blocking_sdk(gateway: Gateway) -> OpenAI:
    """The synchronous client, for a thread."""
    http = DefaultHttpxClient(verify=False)
    return OpenAI(base_url=f"{gateway.url}v1", api_key="any", max_retries=0, http_client=http)


@asynccontextmanager
async def open_sdk(**options: Any) -> AsyncIterator[tuple[Opened, AsyncOpenAI]]:
    """A gateway with these options of `open_gateway`, and a client of it."""
    async with open_gateway(**options) as it, sdk(it.gateway) as client:
        yield it, client


def ask(text: str, **fields: Any) -> dict[str, Any]:
    """The arguments of a completion that asks one question."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
