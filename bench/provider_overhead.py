"""What reading a provider costs: CPU of `LlmService.on_request` against a bare socket and the SDK's own iteration.

    python -m bench.provider_overhead [--rounds 5]

Three measurements in one run, the sides of each by turns, medians over the rounds, microseconds of CPU:

- base: a chunk that is there already, iterated bare and through the base (guard, clocks, records, counts);
- wire: a chunk of streams of `bench.fake_provider` with a few ms between the chunks, so that each is a read of its own:
  a bare protocol (`floor`), aiohttp's client alone (`client`), `openai.AsyncOpenAI` (`sdk`), and our provider with the
  base on top (`ours`), whose calls of functions are counted too;
- request: the same for a whole request whose answer has one chunk.

A table goes to standard error, one JSON object to standard output.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import FrameType
from typing import Any

import aiohttp
import openai
import uvloop
from typing_extensions import override

from bench.child import Child
from bench.provider_floor import FloorPool, write_request
from tg_base.llm import LlmChunk, LlmService
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_schema import TextCompletionRequest

READY_CHUNKS = 100_000
STREAMS = 8
CHUNKS = 400
GAP_MS = 4
REQUESTS = 40

Measure = Callable[[], Awaitable[int]]
"""Read some streams; how many chunks they had."""


class Ready(LlmService):
    """Has its chunks already."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        for _ in range(READY_CHUNKS):
            yield LlmChunk(" token", model="bench")
        yield LlmChunk(in_token=8, out_token=READY_CHUNKS, model="bench", finish_reason="stop")


async def cpu_per_chunk(measure: Measure) -> float:
    """Microseconds of this process's CPU."""
    before = time.process_time()
    chunks = await measure()
    return (time.process_time() - before) / chunks * 1e6


async def calls_per_chunk(measure: Measure) -> float:
    """Calls of functions, of Python and of C: the same on a busy machine."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        chunks = await measure()
    finally:
        sys.setprofile(None)
    return round(calls / chunks, 1)


async def in_turns(rounds: int, **measures: Measure) -> dict[str, float]:
    """Medians, the measures taking turns; each runs once before it counts."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            cost = await cpu_per_chunk(measure)
            if number:
                found[name].append(cost)
    return {name: round(statistics.median(costs), 2) for name, costs in found.items()}


async def base(rounds: int) -> dict[str, float]:
    """Bare iteration, and the base over it."""
    service = Ready("bench")
    request = TextCompletionRequest(prompt="p", streaming=True)

    async def bare() -> int:
        return len([1 async for _ in service.generate_content_stream(request)])

    async def based() -> int:
        return len([1 async for _ in service.on_request(request)])

    return await in_turns(rounds, bare=bare, base=based)


class Readers:
    """The ways to read the same streams: the floor, aiohttp's client alone, the SDK, and ours with the base on top.

    Args:
        port: of `bench.fake_provider`.
        prompt: what it is asked.
    """

    def __init__(self, port: int, prompt: str, service: OpenAiCompatible) -> None:
        url = f"http://127.0.0.1:{port}/v1"
        self._prompt = prompt
        self._service = service
        self._messages: Any = [{"role": "user", "content": prompt}]
        self._body = json.dumps({"model": "bench", "messages": self._messages, "stream": True}).encode()
        self._request, self._floor = write_request(port, self._body), FloorPool(port)
        self._client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._url = f"{url}/chat/completions"
        self._sdk = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)

    async def floor(self) -> int:
        """Nothing but a socket and decoding."""
        return await self._floor.ask(self._request) - 2

    async def client(self) -> int:
        """The client of aiohttp, whose answers nobody decodes; the fake writes each event at once."""
        async with self._client.post(self._url, data=self._body) as answer:
            return sum([data.count(b"data: {") async for data in answer.content.iter_any()]) - 3

    async def sdk(self) -> int:
        """The SDK's own iteration."""
        stream = await self._sdk.chat.completions.create(model="bench", messages=self._messages, stream=True)
        async with stream:
            return len([1 async for chunk in stream if chunk.choices and chunk.choices[0].delta.content])

    async def ours(self) -> int:
        """A request of ours."""
        request = TextCompletionRequest(prompt=self._prompt, streaming=True)
        return sum([bool(record.response) async for record in self._service.on_request(request)])

    async def aclose(self) -> None:
        """Close all connections."""
        self._floor.close()
        await self._client.close()
        await self._sdk.close()


async def wire(rounds: int, port: int, *, prompt: str, times: int) -> dict[str, float]:
    """Streams side by side, several `times` one after the other."""
    options = OpenAiOptions(base_url=f"http://127.0.0.1:{port}/v1", key_variable="")
    service = await OpenAiCompatible.open("bench", options)
    readers = Readers(port, prompt, service)

    def several(one: Measure) -> Measure:
        async def often() -> int:
            return sum([await one() for _ in range(times)])

        async def measure() -> int:
            return sum(await asyncio.gather(*(often() for _ in range(STREAMS))))

        return measure

    try:
        ways = {"floor": readers.floor, "client": readers.client, "sdk": readers.sdk, "ours": readers.ours}
        found = await in_turns(rounds, **{name: several(way) for name, way in ways.items()})
        return {**found, "calls": await calls_per_chunk(several(readers.ours))}
    finally:
        await readers.aclose()
        await service.aclose()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What the base adds to each chunk")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with Child("bench.fake_provider") as provider:
        port = provider.hear()
        ready = uvloop.run(base(rounds))
        streamed = uvloop.run(wire(rounds, port, prompt=f"chunks={CHUNKS} gap={GAP_MS}", times=1))
        asked = uvloop.run(wire(rounds, port, prompt="chunks=1 gap=0", times=REQUESTS))
    result = {
        "base": {**ready, "added": round(ready["base"] - ready["bare"], 2)},
        "wire": {**streamed, "ratio": round(streamed["ours"] / streamed["floor"], 2)},
        "request": {**asked, "ratio": round(asked["ours"] / asked["floor"], 2)},
    }
    for name, row in result.items():
        print(f"{name}: {', '.join(f'{what} {cost}' for what, cost in row.items())}", file=sys.stderr)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
