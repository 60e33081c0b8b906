"""Ollama and LM Studio as the pages show them, on the loopback interface: each answers one word."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar

from tests.fakes.ollama_server import OllamaServer
from tests.fakes.openai_chat_server import CompatibleServer
from tests.fakes.plan import Plan
from tg_schema import ModelInfo


class _Ollama(OllamaServer):
    model: ClassVar[str] = "llama3.2"


class _LmStudio(CompatibleServer):
    model: ClassVar[str] = "qwen3-8b"


@asynccontextmanager
async def local_servers() -> AsyncIterator[Mapping[str, str]]:
    """The variables by which the providers find them."""
    async with _Ollama.running() as ollama, _LmStudio.running() as studio:
        ollama.play(Plan(text=("OK",), models=(ModelInfo(ollama.model), ModelInfo("gemma3"))))
        studio.play(Plan(text=("OK",)))
        yield {"OLLAMA_HOST": ollama.url, "LMSTUDIO_URL": f"{studio.url}/v1"}
