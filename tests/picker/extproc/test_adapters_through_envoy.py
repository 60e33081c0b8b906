"""A real Envoy, `tg-pick`, and three of our own model servers with the demo model and its two adapters.

While a server is killed, the clients are the SDKs too: each request ends in an answer or in an error that they have a
type for.
"""

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import httpx2
import openai
import pytest
import pytest_asyncio

from tests.flow.command import started
from tests.free_port import free_port
from tests.llama.demo_llm import PIRATE, POLITE, speaker_of
from tests.picker.extproc.envoy_server import envoy
from tests.picker.extproc.test_tg_pick import tg_pick
from tg_picker.pools import read_page

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.model,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
]

CONFIG = f"""\
[models.tinydemo]
provider = "llama-cpp"
options = {{ max_resident_adapters = 1, slots = 4, adapters = {{ pirate = "{PIRATE}", polite = "{POLITE}" }} }}

[flows.default]
text-completion = {{ model = "tinydemo" }}
"""
POOL = """\
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: { name: small }
spec: { selector: { matchLabels: { app: small } }, targetPorts: [{ number: 8000 }] }
"""
ROUTE = """\
---
apiVersion: inference.x-k8s.io/v1alpha1
kind: LLMRoute
metadata: {{ name: {adapter} }}
spec: {{ parentRefs: [{{ name: gw }}], backendRefs: [{{ name: small }}], adapter: {{ name: {adapter}, priority: 1 }} }}
"""
ENDPOINT = "  - {{ name: s{at}, address: 127.0.0.1, port: '{port}', labels: {{ app: small }} }}\n"
ADAPTERS = ("pirate", "polite")
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
# Both SDKs pass on what breaks a stream in the middle as their HTTP client raised it.
LEFT = (aiohttp.ClientError, openai.APIError, anthropic.APIError, httpx2.TransportError)

Ask = Callable[..., Awaitable[str | None]]


@dataclass
class World:
    url: str
    ports: list[int]
    processes: list[Process]
    session: aiohttp.ClientSession
    chat: openai.AsyncOpenAI
    claude: anthropic.AsyncAnthropic

    async def ask(self, adapter: str, *, stream: bool = False) -> str | None:
        """Whose answer comes. Raises: what a client of a server that dies meets."""
        body = {"model": adapter, "messages": QUESTION, "temperature": 0, "stream": stream}
        async with self.session.post(f"{self.url}/v1/chat/completions", json=body) as answer:
            read = await answer.text()
            if answer.status != 200:
                # Envoy's own, where the connection broke, or the picker's, while nobody else has room.
                assert answer.status in {429, 503}, read
                raise aiohttp.ClientError(read)
        if not stream:
            return speaker_of(json.loads(read)["choices"][0]["message"]["content"])
        events = [line.removeprefix("data: ") for line in read.splitlines() if line.startswith("data: {")]
        if not read.rstrip().endswith("[DONE]"):
            raise aiohttp.ClientError("the stream ended early")
        deltas = (json.loads(event)["choices"][0]["delta"] for event in events)
        return speaker_of("".join(delta.get("content") or "" for delta in deltas))

    async def ask_openai(self, adapter: str, *, stream: bool = False) -> str | None:
        """The same by OpenAI's SDK. Raises: one of LEFT, or what the SDK raises."""
        said: dict[str, Any] = {"model": adapter, "messages": QUESTION, "temperature": 0}
        if not stream:
            return speaker_of((await self.chat.chat.completions.create(**said)).choices[0].message.content or "")
        text, reason = "", None
        async for chunk in await self.chat.chat.completions.create(**said, stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
        assert reason == "stop", "the SDK takes a stream that broke off for an answer"
        return speaker_of(text)

    async def ask_anthropic(self, adapter: str, *, stream: bool = False) -> str | None:
        """The same by Anthropic's SDK, of the Messages API."""
        said: dict[str, Any] = {"model": adapter, "messages": QUESTION, "max_tokens": 200}
        # This SDK has no parameter for it any more.
        said["extra_body"] = {"temperature": 0}
        if not stream:
            answer = await self.claude.messages.create(**said)
        else:
            async with self.claude.messages.stream(**said) as events:
                answer = await events.get_final_message()
        assert answer.stop_reason == "end_turn", "the SDK takes a stream that broke off for an answer"
        return speaker_of("".join([block.text for block in answer.content if block.type == "text"]))

    async def find_resident(self) -> list[set[str]]:
        """What each live server has in memory, as its page says."""
        found = []
        for port, process in zip(self.ports, self.processes, strict=True):
            if process.returncode is None:
                async with self.session.get(f"http://127.0.0.1:{port}/metrics") as page:
                    report = read_page(await page.read(), "vllm", 0.0)
                assert report is not None
                assert report.adapters is not None
                found.append(set(report.adapters.resident or ()))
        return found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder: Path = tmp_path_factory.mktemp("adapters")
    (folder / "tokengrid.toml").write_text(CONFIG, "utf-8")
    ports, picker = [free_port() for _ in range(3)], free_port()
    rows = [ENDPOINT.format(at=at, port=port) for at, port in enumerate(ports)]
    (folder / "endpoints.yaml").write_text("endpoints:\n" + "".join(rows), "utf-8")
    (folder / "routes.yaml").write_text(POOL + "".join(ROUTE.format(adapter=name) for name in ADAPTERS), "utf-8")
    (folder / "pick.toml").write_text(
        'resources = ["routes.yaml"]\nendpoint_files = ["endpoints.yaml"]\nfallbacks = 1\n', "utf-8"
    )
    async with AsyncExitStack() as stack:
        config = ("--config", str(folder / "tokengrid.toml"), "--log-level", "error")
        processes = [
            await stack.enter_async_context(started("tg-serve", *config, "--port", str(port), stderr=PIPE))
            for port in ports
        ]
        for process in processes:
            assert process.stdout is not None
            async with asyncio.timeout(120):
                while b"ready" not in await process.stdout.readline():
                    assert process.returncode is None
        await stack.enter_async_context(tg_pick(folder, picker))
        url = await stack.enter_async_context(envoy(folder, "duplex", picker, ports))
        timeout = aiohttp.ClientTimeout(total=60)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        chat = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=60)
        claude = anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0, timeout=60)
        await stack.enter_async_context(chat)
        await stack.enter_async_context(claude)
        yield World(url, ports, processes, session, chat, claude)


async def test_the_adapter_that_is_asked_speaks_from_the_server_that_has_it(world: World) -> None:
    assert await world.find_resident() == [set(), set(), set()]
    for at in range(3):
        for adapter in ADAPTERS:
            assert await world.ask(adapter, stream=bool(at % 2)) == adapter
    # Loaded on demand, once each: with one slot a server, another choice would have swapped them.
    assert sorted(map(sorted, await world.find_resident())) == [[], ["pirate"], ["polite"]]


async def test_a_server_that_is_killed_in_mid_load_ends_its_requests_and_the_others_go_on(world: World) -> None:
    answered, stop, came = Counter[str](), asyncio.Event(), asyncio.Condition()
    clients: list[Ask] = [world.ask, world.ask_openai, world.ask_anthropic]

    async def ask_on(ask: Ask, adapter: str, *, stream: bool) -> None:
        while not stop.is_set():
            # What ran on the server that was killed ends so, or in an answer of another one.
            with suppress(*LEFT):
                assert await ask(adapter, stream=stream) == adapter
                answered[adapter] += 1
                answered[ask.__name__] += 1
            async with came:
                came.notify_all()

    async def until_answered(more: int) -> None:
        wanted = {adapter: answered[adapter] + more for adapter in ADAPTERS}
        wanted |= {ask.__name__: answered[ask.__name__] + 1 for ask in clients}
        async with came:
            await came.wait_for(lambda: all(answered[name] >= number for name, number in wanted.items()))

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for ask, adapter, stream in product(clients, ADAPTERS, (False, True)):
            group.create_task(ask_on(ask, adapter, stream=stream))
        await until_answered(6)
        resident = await world.find_resident()
        victim = next(at for at, names in enumerate(resident) if "pirate" in names)
        world.processes[victim].kill()
        await world.processes[victim].wait()
        await until_answered(12)
        stop.set()
    # Nothing hangs: all of them have ended here. What the server had was loaded elsewhere.
    assert [await world.ask(adapter) for adapter in ADAPTERS] == list(ADAPTERS)
    assert ADAPTERS[-1] in set().union(*await world.find_resident())
