"""What the base adds to each chunk: CPU of `LlmService.on_request` against the SDK's own iteration, same run.

    python -m bench.provider_overhead [--rounds 5]

Two measurements, each of both sides by turns, medians over the rounds:

- base: chunks that are there already, iterated bare and through the base (guard, clocks, records, counts);
- wire: streams of `bench.fake_provider` with a few ms between the chunks, so that each is a read of its own, through
  `openai.AsyncOpenAI` and through our provider with the base on top.

A table goes to standard error, one JSON object to standard output.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

import openai
import uvloop
from typing_extensions import override

from bench.child import Child
from tg_base.llm import LlmChunk, LlmService
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_schema import TextCompletionRequest

READY_CHUNKS = 100_000
STREAMS = 8
CHUNKS = 400
GAP_MS = 4

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


async def wire(rounds: int, url: str) -> dict[str, float]:
    """The SDK's iteration, and our provider with the base on top."""
    prompt = f"chunks={CHUNKS} gap={GAP_MS}"
    sdk = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    options = OpenAiOptions(base_url=url, key_variable="")
    service = await OpenAiCompatible.open("bench", options)
    request = TextCompletionRequest(prompt=prompt, streaming=True)

    async def theirs() -> int:
        stream = await sdk.chat.completions.create(
            model="bench", messages=[{"role": "user", "content": prompt}], stream=True
        )
        async with stream:
            return len([1 async for chunk in stream if chunk.choices and chunk.choices[0].delta.content])

    async def ours() -> int:
        records = [record async for record in service.on_request(request)]
        return sum(bool(record.response) for record in records)

    def several(one: Measure) -> Measure:
        async def measure() -> int:
            return sum(await asyncio.gather(*(one() for _ in range(STREAMS))))

        return measure

    try:
        return await in_turns(rounds, sdk=several(theirs), ours=several(ours))
    finally:
        await service.aclose()
        await sdk.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What the base adds to each chunk")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with Child("bench.fake_provider") as provider:
        url = f"http://127.0.0.1:{provider.hear()}/v1"
        ready, streamed = uvloop.run(base(rounds)), uvloop.run(wire(rounds, url))
    result = {
        "base": {**ready, "added": round(ready["base"] - ready["bare"], 2)},
        "wire": {**streamed, "added": round(streamed["ours"] - streamed["sdk"], 2)},
    }
    for name, row in result.items():
        print(f"{name}: {', '.join(f'{what} {cost} us' for what, cost in row.items())} a chunk", file=sys.stderr)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
