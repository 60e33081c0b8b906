"""A gateway and the SDK's flow of it; the openai provider and its server; files of models that are edited."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.fakes.openai_server import OpenAiServer
from tests.flow.edited_models import SERVED, OneWord, write
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.openai_asking import MODEL, Open
from tg_base.bus.memory import MemoryBus
from tg_base.protocol import Route
from tg_client import Flow, TgClient
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse
from tg_schema.topics import Topics


@pytest.fixture
async def memory() -> AsyncIterator[MemoryBus]:
    """A bus of one process."""
    async with aclosing(MemoryBus()) as bus:
        yield bus


@pytest.fixture
def route() -> Route[TextCompletionRequest, TextCompletionResponse]:
    """A flow that no other test uses, also on a broker."""
    flow, topics, service = uuid4().hex, Topics(), TEXT_COMPLETION.name
    return Route(flow, TEXT_COMPLETION, topics.request(flow, service), topics.response(flow, service))


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """A gateway that really listens."""
    async with open_gateway() as opened:
        yield opened


@pytest.fixture
def it(opened: Opened) -> Opened:
    """The same, for tests of what it says."""
    return opened


@pytest.fixture(params=["rest", "socket"])
async def flow(request: pytest.FixtureRequest, opened: Opened) -> AsyncIterator[Flow]:
    """A flow of the gateway's, by each way in of the SDK."""
    async with TgClient(opened.gateway.url) as client:
        if request.param == "rest":
            yield client.flow()
        else:
            async with client.socket() as socket:
                yield socket.flow()


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


@pytest.fixture
def fresh_models() -> None:
    """No model of `edited_models` has been opened."""
    OneWord.gate = asyncio.Event()
    OneWord.rehearsed, OneWord.opening, OneWord.opened, OneWord.closed = [], [], [], []


@pytest.fixture
def models_file(tmp_path: Path) -> Path:
    """A file of two models."""
    file = tmp_path / "tg.toml"
    write(file, SERVED)
    return file
