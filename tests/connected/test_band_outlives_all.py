"""Responses that wait on a real broker: gateway and picker are killed, and each is answered once, or expires.

So it is as a gateway is configured by default, and as a client asks that knows nothing of attempts.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import ClientSession, ServerDisconnectedError

from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import MODEL, LiveOpenAi, told
from tests.until import until
from tg_base.config import GatewayConfig

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

SLOTS = 16
WAITING = 200
"""Three times what a gateway holds at a time, and more than twelve times what models have room for."""
EXPIRING = 20
"""Of them: their time is over while nobody runs."""
MAX_WAIT_SECONDS = 1.0
AT_ONCE = 16
ATTEMPTS = GatewayConfig().default_max_attempts
"""As often as all is killed while models work, and once more."""
WORKED_OFF = 50
"""Answers after which the picker and the gateway are killed once more."""


def configure(line: Pipeline, *servers: str) -> None:
    """A pool of servers behind one name, whose responses may wait."""
    endpoints = ", ".join(f'"{url.removeprefix("http://").removesuffix("/v1")}"' for url in servers)
    line.file.write_text(
        f"""
        [gateway]
        drain = 2
        max_wait = 3600
        [models.live]
        provider = "pool"
        options = {{ endpoints = [{endpoints}], scraped = false, capacity = {SLOTS} }}
        [flows.{line.flow}]
        text-completion = {{ model = "live" }}
        """,
        "utf-8",
    )


async def start(line: Pipeline) -> str:
    """Gateway and processor; where the gateway listens."""
    gateway, _ = await asyncio.gather(line.start("gateway"), line.start("text-completion"))
    return f"{gateway.url}v1/responses"


async def kill(line: Pipeline) -> None:
    """All that runs, at once."""
    alive = [part for part in line.parts if part.alive]
    for part in alive:
        part.process.kill()
    await asyncio.gather(*(part.stopped(10) for part in alive))


async def put(http: ClientSession, url: str, prompt: str, **fields: Any) -> str:
    """The id of a response that waits."""
    asked = {"model": MODEL, "input": prompt, "background": True, "service_tier": "flex", **fields}
    async with http.post(url, json=asked) as response:
        made = await response.json()
        assert (response.status, made.get("status")) == (200, "queued"), made
        return str(made["id"])


async def ended(http: ClientSession, url: str, name: str) -> dict[str, Any]:
    """The response when it has ended."""
    while True:
        async with http.get(f"{url}/{name}") as response:
            found: dict[str, Any] = await response.json()
            assert response.status == 200, found
        if found["status"] not in {"queued", "in_progress"}:
            return found
        await asyncio.sleep(0.5)


def count(servers: list[LiveOpenAi]) -> int:
    """Requests that any of them has seen."""
    return sum(len(server.generations) for server in servers)


async def side_by_side(asking: list[Any]) -> list[Any]:
    """Some of them at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(each: Any) -> Any:
        async with gate:
            return await each

    return await asyncio.gather(*map(one, asking))


async def test_what_waits_outlives_gateway_and_picker_and_is_answered_once(line: Pipeline) -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(LiveOpenAi.listening()) for _ in range(2)]
        http = await stack.enter_async_context(ClientSession())
        configure(line, *(server.url for server in servers))
        url = await start(line)
        # Other work has all the room: it is never answered.
        for server in servers:
            server.speak.clear()
        busy = [asyncio.create_task(post(http, url, "other work")) for _ in range(SLOTS)]
        await until(lambda: count(servers) == SLOTS)
        kept = [str(number) for number in range(WAITING - EXPIRING)]
        names = await side_by_side([put(http, url, prompt) for prompt in kept])
        lost = await side_by_side([put(http, url, "late", max_wait=MAX_WAIT_SECONDS) for _ in range(EXPIRING)])
        await kill(line)
        await asyncio.gather(*busy)
        assert count(servers) == SLOTS
        await asyncio.sleep(MAX_WAIT_SECONDS)

        # As many as find room are asked, and end with their gateway.
        url = await start(line)
        await until(lambda: count(servers) == 2 * SLOTS)
        begun = {each.prompt for server in servers for each in server.running}
        await kill(line)

        for server in servers:
            server.speak.set()
            server.finish.set()
        url = await start(line)
        await until(lambda: count(servers) >= 2 * SLOTS + WORKED_OFF)
        # The picker first: what the gateway takes meanwhile is begun by nobody.
        for part in sorted(line.parts, key=lambda part: part.url):
            if part.alive:
                part.process.kill()
                await part.stopped(10)
        url = await start(line)
        found = await side_by_side([ended(http, url, name) for name in names + lost])
        # It stays the only one.
        assert await side_by_side([ended(http, url, name) for name in names[:SLOTS]]) == found[:SLOTS]
    assert all("expired" in each["error"]["message"] for each in found[len(names) :])
    for answer in found[: len(names)]:
        assert answer["status"] == "completed", answer
        told(answer["output"][0]["content"][0]["text"], whole=True)
    asked = Counter(each.prompt for server in servers for each in server.generations)
    assert asked.pop("other work") == SLOTS
    assert asked.keys() == set(kept)
    # Again only what models worked on when all was killed.
    assert all(1 < asked[prompt] <= ATTEMPTS for prompt in begun)
    assert sum(times > 1 for times in asked.values()) <= 2 * SLOTS


async def post(http: ClientSession, url: str, prompt: str) -> None:
    """Work that ends with its gateway."""
    with pytest.raises(ServerDisconnectedError):
        async with http.post(url, json={"model": MODEL, "input": prompt}):
            pass
