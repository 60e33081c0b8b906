"""Overload is an answer: a full queue and a deserted one are refused on every door, with the time to come back."""

import asyncio
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY

from tests.fakes.counting_llm import release
from tests.flow.narrow_gateway import DOORS, OFTEN, Refused, another_gateway, narrow_gateway
from tests.flow.open_gateway import CONFIG, PROMPTS, TEXTS
from tests.until import until
from tests.within import within
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.config import Config
from tg_base.config.model import PromptsConfig, TemplateConfig
from tg_base.server import Processor
from tg_flow.prompt import PromptService, Templates
from tg_schema import TextCompletionRequest
from tg_schema.errors import RateLimited


def refusals(reason: str, service: str = "text-completion") -> float:
    return REGISTRY.get_sample_value("tg_refusals_total", {"service": service, "reason": reason}) or 0.0


def streams() -> float:
    return REGISTRY.get_sample_value("tg_gateway_streams") or 0.0


async def until_streams(number: int) -> None:
    """Return once so many requests are on their way."""
    await until(lambda: streams() == number)


@pytest.mark.parametrize("door", DOORS)
async def test_what_would_find_the_queue_full_is_refused(door: str) -> None:
    async with narrow_gateway(capacity=2, queue=1) as it:
        it.llm.step = asyncio.Semaphore(0)
        counted = refusals("queue")
        let_in = [asyncio.create_task(it.ask(door)) for _ in range(3)]
        await until_streams(3)
        await it.until_asked(2)
        refused = await it.ask(door)
        assert isinstance(refused, Refused)
        assert (refused.status, refused.kind) == (429, "rate-limited")
        assert refused.after > 0
        assert refusals("queue") == counted + 1
        assert len(it.llm.requests) == 2
        release(it.llm.step, len(let_in))
        assert await asyncio.gather(*let_in) == ["0 "] * 3
        it.llm.step = None
        assert await it.ask(door) == "0 "


async def test_retry_after_is_what_requests_take() -> None:
    async with narrow_gateway(capacity=1, queue=0) as it:
        assert await it.ask() == "0 "
        it.llm.step = asyncio.Semaphore(0)
        await until(lambda: all(presence.seconds for presence in it.requestor.presence))
        (presence,) = it.requestor.presence
        running = asyncio.create_task(it.ask())
        await until_streams(1)
        refused = await it.ask("socket")
        assert isinstance(refused, Refused)
        assert refused.after == pytest.approx(presence.seconds, abs=0.001)
        it.llm.step.release()
        await running


@pytest.mark.parametrize("door", DOORS)
async def test_nobody_serves_it(door: str) -> None:
    async with (
        aclosing(MemoryBus()) as bus,
        narrow_gateway() as served,
        another_gateway(bus, served.llm, served=False) as it,
    ):
        await until(lambda: it.requestor.presence.is_unserved(TEXTS[0].request))
        counted = refusals("deserted")
        refused = await it.ask(door)
        assert isinstance(refused, Refused)
        assert (refused.status, refused.kind) == (503, "unavailable")
        assert refused.after >= 1
        assert refusals("deserted") == counted + 1


async def test_a_client_that_leaves_gives_its_place_back() -> None:
    async with narrow_gateway(capacity=1, queue=0) as it:
        it.llm.step = asyncio.Semaphore(0)
        leaving = asyncio.create_task(it.ask())
        await it.until_asked(1)
        assert isinstance(await it.ask(), Refused)
        leaving.cancel()
        await within(1, it.llm.stopped.wait())
        await until_streams(0)
        it.llm.step = None
        assert await it.ask() == "0 "


async def test_what_other_gateways_have_running_is_theirs() -> None:
    async with narrow_gateway(capacity=3, queue=0) as one, another_gateway(one.bus, one.llm, queue=0) as two:
        one.llm.step = asyncio.Semaphore(0)
        first = [asyncio.create_task(one.ask()) for _ in range(2)]
        await one.until_asked(2)
        await two.until_in_flight(2)
        second = asyncio.create_task(two.ask())
        await one.until_asked(3)
        # An announcement from before the third request may still be on its way.
        for gateway in (two, one):
            await gateway.until_in_flight(3)
            assert isinstance(await gateway.ask(), Refused)
        release(one.llm.step, 3)
        assert await asyncio.gather(*first, second) == ["0 "] * 3
        await two.until_in_flight(0)
        one.llm.step = None
        assert await two.ask() == "0 "


async def test_a_prompt_is_refused_where_its_model_is_full() -> None:
    async with narrow_gateway(capacity=1, queue=0) as it, AsyncExitStack() as stack:
        inner = await stack.enter_async_context(Requestor(it.bus, CONFIG.topics, timing=OFTEN))
        client = Client(inner, replace(TEXTS[0], queue=0), bounded=True)
        templates = Templates.of(Config(prompts=PromptsConfig(templates={"n": TemplateConfig(prompt="{{ n }}")})))
        service = PromptService(client, templates)
        await stack.enter_async_context(Processor(it.bus, CONFIG.topics, service, PROMPTS, timing=OFTEN, grace=0.05))
        await until(lambda: bool(inner.presence.serving(TEXTS[0].request)))
        it.llm.step = asyncio.Semaphore(0)
        running = asyncio.create_task(it.ask())
        await it.until_asked(1)
        await it.until_in_flight(1)
        await until(lambda: any(presence.in_flight for presence in inner.presence.serving(TEXTS[0].request)))
        for door in DOORS:
            refused = await it.ask(door, service="prompt", id="n", variables={"n": 1})
            assert isinstance(refused, Refused), door
            assert (refused.status, refused.kind) == (429, "rate-limited")
        it.llm.step.release()
        assert await running == "0 "


async def test_steps_of_what_was_let_in_are_never_refused() -> None:
    async with narrow_gateway(capacity=1) as it:
        it.llm.step = asyncio.Semaphore(0)
        route = replace(TEXTS[0], queue=0)
        free = [
            asyncio.create_task(Client(it.requestor, route).call(TextCompletionRequest(prompt="1"))) for _ in range(5)
        ]
        await it.until_asked(1)
        with pytest.raises(RateLimited):
            await Client(it.requestor, route, bounded=True).call(TextCompletionRequest(prompt="1"))
        release(it.llm.step, len(free))
        assert [answer.response for answer in await asyncio.gather(*free)] == ["0 "] * 5
