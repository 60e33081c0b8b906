"""The openai provider and the server that it talks to; files of models that are edited."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.openai_server import OpenAiServer
from tests.flow.edited_models import SERVED, OneWord, write
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
