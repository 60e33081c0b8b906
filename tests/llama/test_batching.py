"""Many streams on one model: side by side, waiting, cancelled, failing, closed."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from tests.llama.demo_llm import ENDLESS, STORY, asked, at_rest, demo_service, opened, records_of, text_of, until, whole
from tg_llama.core.interface import EngineSizes
from tg_llama.core.sampler_settings import SamplerSettings
from tg_llama.engine.engine_pool import EnginePool
from tg_llama.engine.generation import Generation, Job
from tg_llama.models import DEMO_MODEL
from tg_llama.native.model import Model
from tg_llama.provider import LlamaCpp
from tg_schema.errors import ContextLengthExceeded, RateLimited, Unavailable

pytestmark = pytest.mark.model

GREEDY = SamplerSettings(temperature=0, top_k=0, top_p=1, seed=0)
ONE_STEP = 2
"""Tokens that a stream may still get: of the step that runs when it is cancelled, and of one that just began."""


@pytest.fixture(scope="module")
def service() -> Iterator[LlamaCpp]:
    with demo_service() as service:
        yield service


@pytest.fixture(scope="module")
def narrow() -> Iterator[LlamaCpp]:
    """One slot, and room for two that wait."""
    with demo_service(slots=1, waiting=2) as service:
        yield service


async def test_streams_side_by_side_get_the_text_that_each_gets_alone(service: LlamaCpp) -> None:
    prompts = ["Count to 10.", "What is JSON?", STORY, "What is the capital of Italy?", "Tell me a story about a bee."]
    requests = [asked(prompt, seed=number) for number, prompt in enumerate(prompts * 6)]
    alone = [await text_of(service, request) for request in requests]
    before = service.engine.stats()
    together = await asyncio.gather(*(text_of(service, request) for request in requests))
    assert together == alone
    after = service.engine.stats()
    steps, tokens = after.steps - before.steps, after.generated_tokens - before.generated_tokens
    assert tokens > 3 * steps, "streams share the steps"


async def test_a_long_answer_does_not_hold_up_a_short_one(service: LlamaCpp) -> None:
    async with aclosing(service.on_request(ENDLESS)) as endless:
        await anext(endless)
        assert await text_of(service, asked("Count to 3.", temperature=0)) == "1, 2, 3"
        assert service.engine.stats().running >= 1, "the long one runs on"


async def test_capacity_is_the_number_of_slots(narrow: LlamaCpp, service: LlamaCpp) -> None:
    assert (narrow.capacity, service.capacity) == (1, 16)


async def test_closing_a_stream_frees_its_slot_within_a_step(service: LlamaCpp) -> None:
    async with aclosing(service.on_request(ENDLESS)) as story:
        for _ in range(3):
            await anext(story)
        assert service.engine.stats().running == 1
        before = service.engine.stats().generated_tokens
    after = await at_rest(service)
    assert after.generated_tokens - before <= ONE_STEP


async def test_cancelling_half_of_the_streams_leaves_the_others_whole(service: LlamaCpp) -> None:
    requests = [asked(STORY, seed=seed) for seed in range(16)]
    alone = [await text_of(service, request) for request in requests]
    tasks = [asyncio.create_task(text_of(service, request)) for request in requests]
    await until(service, lambda stats: stats.running == 16)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[1::2] == alone[1::2]
    assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])


async def test_a_stream_cancelled_while_it_waits_never_runs(narrow: LlamaCpp) -> None:
    async with aclosing(narrow.on_request(ENDLESS)) as endless:
        await anext(endless)
        waiting = asyncio.create_task(text_of(narrow, asked("Who are you, and what is JSON?")))
        prompts = (await until(narrow, lambda stats: stats.waiting == 1)).prompt_tokens
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(narrow, lambda stats: stats.waiting == 0)
    assert (await at_rest(narrow)).prompt_tokens == prompts


async def test_more_than_may_wait_are_refused_and_can_come_back(narrow: LlamaCpp) -> None:
    short = asked("Count to 3.", temperature=0)
    async with aclosing(narrow.on_request(ENDLESS)) as endless:
        await anext(endless)
        waiting = [asyncio.create_task(text_of(narrow, short)) for _ in range(2)]
        await until(narrow, lambda stats: stats.waiting == 2)
        with pytest.raises(RateLimited, match="ask again") as refused:
            await text_of(narrow, short)
        assert refused.value.retry_after == 1.0
    assert await asyncio.gather(*waiting) == ["1, 2, 3"] * 2
    assert await text_of(narrow, short) == "1, 2, 3"


async def test_a_long_prompt_is_read_in_parts_and_can_be_cancelled_between_them() -> None:
    async with opened(slots=1, context=16_384, batch=64) as service:
        prompt = "What is a river? " * 1_500
        task = asyncio.create_task(text_of(service, asked(prompt)))
        seen = await until(service, lambda stats: stats.prompt_tokens > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        after = await at_rest(service)
    assert seen.prompt_tokens <= 2 * 64
    assert after.prompt_tokens <= seen.prompt_tokens + ONE_STEP * 64
    assert after.generated_tokens == 0


async def test_a_reader_that_lags_gets_everything_in_fewer_records(service: LlamaCpp) -> None:
    request = asked(STORY, seed=3)
    expected = await whole(service, request)
    async with aclosing(service.on_request(request)) as stream:
        first = await anext(stream)
        await at_rest(service)
        rest = [record async for record in stream]
    assert len(rest) <= 3
    assert (first.response or "") + "".join(record.response or "" for record in rest) == expected.response
    assert rest[-1].out_token == expected.out_token


async def test_a_common_beginning_is_evaluated_once(narrow: LlamaCpp) -> None:
    request = asked("Count to 3.", system="You are a helpful assistant. " * 8, temperature=0)
    first = await whole(narrow, request)
    before = narrow.engine.stats().prompt_tokens
    again = await whole(narrow, request)
    assert (again.response, again.in_token) == (first.response, first.in_token)
    assert narrow.engine.stats().prompt_tokens - before == 1, "the last token, whose logits are wanted"
    assert again.cached_token == (first.in_token or 0) - 1


def generation(*prompt: int, most: int = 10) -> Generation:
    job = Job(prompt=prompt, settings=GREEDY, max_tokens=most)
    return Generation(job, [b"x"] * 4096)


async def finished(generation: Generation) -> tuple[int | None, int | None, str | None]:
    chunks = [await generation.read()]
    while chunks[-1].finish_reason is None:
        chunks.append(await generation.read())
    assert all(chunk.in_token is None for chunk in chunks[1:])
    return chunks[0].in_token, sum(chunk.out_token or 0 for chunk in chunks), chunks[-1].finish_reason


@pytest.fixture(scope="module")
def pool() -> Iterator[EnginePool[Model]]:
    pool = EnginePool(Model(DEMO_MODEL), EngineSizes(slots=4, context=512))
    yield pool
    pool.close()


async def test_a_native_error_ends_its_streams_and_the_engine_goes_on(pool: EnginePool[Model]) -> None:
    failing = generation(1_000_000)
    pool.submit(failing)
    with pytest.raises(Unavailable, match="could not evaluate"):
        await failing.read()
    working = generation(*pool.model.tokenize("Once upon a time", special=False))
    pool.submit(working)
    assert await finished(working) == (4, 10, "length")


async def test_a_prompt_that_fills_the_context_is_refused(pool: EnginePool[Model]) -> None:
    with pytest.raises(ContextLengthExceeded, match=r"is 512 tokens\..* has 512 tokens"):
        pool.submit(generation(*range(5, 517)))
    last = generation(*range(5, 516))
    pool.submit(last)
    assert await finished(last) == (511, 1, "length")


async def test_closing_ends_what_runs_and_what_waits_with_an_error() -> None:
    async with opened(slots=1) as service:
        running = asyncio.create_task(records_of(service, asked(STORY)))
        waiting = asyncio.create_task(records_of(service, asked(STORY)))
        await until(service, lambda stats: stats.running == 1)
        await service.aclose()
        for task in (running, waiting):
            with pytest.raises(Unavailable, match="shut down"):
                await task
        with pytest.raises(Unavailable, match="shut down"):
            await records_of(service, asked(STORY))


def test_streams_of_several_loops_share_the_engine(service: LlamaCpp) -> None:
    async def two() -> list[str]:
        return await asyncio.gather(*(text_of(service, asked("Count to 3.", temperature=0)) for _ in range(2)))

    async def both() -> list[list[str]]:
        return list(await asyncio.gather(*(asyncio.to_thread(asyncio.run, two()) for _ in range(2))))

    assert asyncio.run(both()) == [["1, 2, 3"] * 2] * 2


def test_a_loop_that_dies_with_its_streams_frees_their_slots(service: LlamaCpp) -> None:
    loop = asyncio.new_event_loop()
    stream = service.on_request(ENDLESS)
    loop.run_until_complete(anext(aiter(stream)))
    loop.close()
    asyncio.run(asyncio.wait_for(at_rest(service), 20))
    assert asyncio.run(text_of(service, asked("Count to 3.", temperature=0))) == "1, 2, 3"


def test_threads_that_wait_for_each_other_sleep_soon() -> None:
    environment = os.environ | {"OMP_DISPLAY_ENV": "verbose"}
    environment.pop("GOMP_SPINCOUNT", None)  # this process has set it
    command = [sys.executable, "-c", "import tg_llama.native.library"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    assert "GOMP_SPINCOUNT = '1000'" in shown, "OpenMP has read it"
