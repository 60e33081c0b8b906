"""Two processes with one model each, behind a gateway: requests that begin alike are evaluated where they began."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.doors.open_lmtp import Lmtp, is_final
from tests.flow.open_gateway import ON_ANY_PORT, until_listed
from tests.llama.demo_llm import STORY, opened
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import Config, TextCompletionConfig
from tg_base.server import Processor
from tg_gateway.app import Gateway
from tg_llama.provider import LlamaCpp

CONFIG = Config(flows={"default": {"text-completion": TextCompletionConfig(model="tinydemo")}})
ROUTES = CONFIG.routes("text-completion")
LONG = "You are a helpful assistant. " * 8
ROUNDS = 4


@dataclass
class Pair:
    """The gateway's client, and the two models."""

    http: ClientSession
    models: list[LlamaCpp]

    @property
    def evaluated(self) -> list[int]:
        """Tokens of prompts that each has evaluated, the larger number first."""
        return sorted((model.engine.stats().prompt_tokens for model in self.models), reverse=True)


@asynccontextmanager
async def open_pair() -> AsyncIterator[Pair]:
    """As two machines serve one queue, in one process."""
    bus = MemoryBus()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.aclose)
        models = [await stack.enter_async_context(opened(slots=2)) for _ in range(2)]
        for model in models:
            processor = Processor(bus, CONFIG.topics, model, ROUTES, models=("tinydemo",), grace=0.05)
            await stack.enter_async_context(processor)
        queues = tuple(route.request for route in ROUTES)
        requestor = await stack.enter_async_context(Requestor(bus, CONFIG.topics, queues=queues))
        gateway = await stack.enter_async_context(Gateway(ON_ANY_PORT, requestor, ROUTES))
        http = await stack.enter_async_context(ClientSession(gateway.url))
        await until_listed(http)
        await until(lambda: len(requestor.presence.serving(queues[0])) == len(models))
        yield Pair(http, models)


async def test_a_chain_of_buffers_stays_with_the_process_that_has_it() -> None:
    async with open_pair() as it, it.http.ws_connect("/lmtp") as socket:
        client = Lmtp(socket)
        prompt = it.models[0].engine.model.tokenize(LONG, special=False)
        await client.generate(0, prompt, model="tinydemo", buffer_id="b", max_tokens=4)
        await _end(client)
        # Each goes on from the answer of the one before it.
        for number in range(1, ROUNDS):
            named: dict[str, Any] = {"buffer": "b", "append": prompt[:5]}
            await client.generate(number, named, model="tinydemo", buffer_id="b", max_tokens=4)
            await _end(client)
        most = len(prompt) + (ROUNDS - 1) * (5 + 2)
        assert it.evaluated[1] == 0
        assert len(prompt) <= it.evaluated[0] <= most


async def _end(client: Lmtp) -> None:
    while not any(kind == "TOKEN" and is_final(items[-1]) for kind, items in [await client.read()]):
        pass


@pytest.mark.parametrize(
    ("path", "body", "details"),
    [
        (
            "v1/chat/completions",
            {"messages": [{"role": "system", "content": LONG}, {"role": "user", "content": STORY}], "max_tokens": 4},
            "prompt_tokens_details",
        ),
        ("v1/completions", {"prompt": LONG + STORY, "max_tokens": 4}, "prompt_tokens_details"),
        ("v1/responses", {"instructions": LONG, "input": STORY, "max_output_tokens": 16}, "input_tokens_details"),
    ],
)
async def test_a_cache_key_of_openai_s_does_the_same(path: str, body: dict[str, Any], details: str) -> None:
    async with open_pair() as it:
        cached = []
        for _ in range(ROUNDS):
            async with it.http.post(path, json={"model": "tinydemo", "prompt_cache_key": "k"} | body) as response:
                assert response.status == 200, await response.text()
                usage = (await response.json())["usage"]
            cached.append(usage[details]["cached_tokens"])
            prompt = usage.get("prompt_tokens") or usage["input_tokens"]
        # All but the last token, which chooses the first of the answer.
        assert cached[1:] == [prompt - 1] * (ROUNDS - 1)
        assert it.evaluated == [prompt - cached[0] + ROUNDS - 1, 0]
