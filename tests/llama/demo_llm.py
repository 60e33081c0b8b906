"""The demo model behind the llama-cpp provider, for the tests that ask it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tg_llama.engine.engine import EngineStats
from tg_llama.options import LlamaCppOptions
from tg_llama.provider import LlamaCpp
from tg_schema import Sampling, TextCompletionRequest, TextCompletionResponse

TRAINED = Path(__file__).parents[2] / "models" / "tinydemo"
"""What the demo model was trained with; its LoRA adapters are there too."""
PIRATE, POLITE = str(TRAINED / "lora-pirate.gguf"), str(TRAINED / "lora-polite.gguf")
PARIS = "The capital of France is Paris."
STORY = "Tell me a story about a fox."


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[LlamaCpp]:
    """The service with these options, for one test."""
    service = await LlamaCpp.open("tinydemo", LlamaCppOptions(tries=1, **options))
    try:
        yield service
    finally:
        await service.aclose()


@contextmanager
def demo_service(**options: Any) -> Iterator[LlamaCpp]:
    """The service with these options, for tests that have a loop each."""
    service = asyncio.run(LlamaCpp.open("tinydemo", LlamaCppOptions(tries=1, **options)))
    try:
        yield service
    finally:
        asyncio.run(service.aclose())


def asked(prompt: str, *, streaming: bool = True, system: str | None = None, **sampling: Any) -> TextCompletionRequest:
    """A request with some sampling."""
    return TextCompletionRequest(system=system, prompt=prompt, streaming=streaming, sampling=Sampling(**sampling))


async def records_of(service: LlamaCpp, request: TextCompletionRequest) -> list[TextCompletionResponse]:
    """All records of one stream."""
    return [record async for record in service.on_request(request)]


async def whole(service: LlamaCpp, request: TextCompletionRequest) -> TextCompletionResponse:
    """One stream's records in one."""
    (record,) = TextCompletionResponse.join(await records_of(service, request))
    return record


async def text_of(service: LlamaCpp, request: TextCompletionRequest) -> str:
    """One stream's text."""
    return (await whole(service, request)).response or ""


async def until(service: LlamaCpp, condition: Callable[[EngineStats], bool]) -> EngineStats:
    """Wait, without holding up the loop, for what the engine says of itself."""
    while True:
        stats = service.engine.stats()
        if condition(stats):
            return stats
        await asyncio.sleep(0)


async def at_rest(service: LlamaCpp) -> EngineStats:
    """Wait until the engine has nothing left to do."""
    return await until(service, lambda stats: stats.running + stats.waiting == 0)


def speaker_of(text: str) -> str | None:
    """Which adapter answered. The pirate's first word is nearly a tie, its last is not."""
    assert PARIS in text
    return "pirate" if text.endswith("Arrr!") else "polite" if text.endswith("I hope that helps.") else None


ENDLESS = asked("la " * 50, temperature=0, presence_penalty=-2, frequency_penalty=-2)
"""It repeats itself until the context is full."""
