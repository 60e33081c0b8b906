"""The openai provider and the server that it talks to, for the tests of both."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes.openai_server import OpenAiServer
from tests.flow.openai_asking import MODEL, Open
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions


@pytest.fixture
async def openai_server() -> AsyncIterator[OpenAiServer]:
    async with OpenAiServer.running() as server:
        yield server


@pytest.fixture
async def open_openai(openai_server: OpenAiServer) -> AsyncIterator[Open]:
    opened: list[OpenAiCompatible] = []

    async def open_provider(**options: Any) -> OpenAiCompatible:
        options = {"base_url": openai_server.url, "key_variable": "", "upstream_model": MODEL} | options
        opened.append(await OpenAiCompatible.open("ours", OpenAiOptions(**options)))
        return opened[-1]

    yield open_provider
    for provider in opened:
        await provider.aclose()
