"""A route -> its models: what once went wrong, in the requestor."""

import asyncio

import pytest

from tests.flow.route_world import opened
from tests.virtual_time import in_virtual_time
from tg_base.client import BeginPermit, Client, Requestor
from tg_base.client.asked_stream import AskedStream
from tg_base.client.attempts import MAX_ATTEMPTS
from tg_base.config import RouteConfig
from tg_base.llm.guard import Clocks
from tg_base.telemetry import trace
from tg_schema import TextCompletionRequest
from tg_schema.errors import BadRequest, RateLimited, Unavailable

A_THEN_B = RouteConfig(models=("a", "b"))
THREE = RouteConfig(models=("a", "b", "c"))


@in_virtual_time
async def test_two_silent_models_are_given_up_with_default_clocks() -> None:
    async with opened(r=THREE) as it:
        it.models["a"].silent = it.models["b"].silent = True
        assert (await it.ask()).model == "c"
        assert 120 <= asyncio.get_running_loop().time() < 150


@in_virtual_time
async def test_nobody_is_charged_for_a_shadow() -> None:
    async with opened(r=RouteConfig(models=("a",), shadow="b")) as it:
        asking, copying = (it.bus.subscribe(it.queue(model), "watch") for model in ("a", "b"))
        async with asking as asked, copying as copied:
            trace.name_caller("c", '{"key":"k"}')
            await it.ask()
            answered, shadowed = (await anext(asked)).properties, (await anext(copied)).properties
        assert (answered["payer"], answered["caller"], "door" in answered) == ('{"key":"k"}', "c", False)
        assert ("payer" in shadowed, shadowed["caller"], shadowed["door"]) == (False, "c", "shadow")
        assert shadowed["request"] == answered["request"]


@pytest.mark.parametrize("answering", ["b", "c"])
@in_virtual_time
async def test_a_late_error_of_a_publish_does_not_end_an_answer(answering: str) -> None:
    async with opened(r=THREE) as it:
        it.bus.unconfirmed.add(it.queue("b"))
        for model in "ab" if answering == "c" else "a":
            it.models[model].silent, it.models[model].clocks = True, Clocks(first_token=0.1)
        it.models[answering].pace = 1.0
        texts: list[str] = []
        await it.read(TextCompletionRequest(prompt="10", streaming=True), texts)
        assert "".join(texts).split() == [*map(str, range(10))]


@in_virtual_time
async def test_a_shadow_gets_nothing_that_may_not_begin_or_edits_a_model() -> None:
    edit = TextCompletionRequest(operation="load-adapter", adapter="x", adapter_path="/x", streaming=False)
    async with opened(r=RouteConfig(models=("a",), shadow="b")) as it, it.bus.subscribe(it.queue("b"), "w") as copied:
        with pytest.raises(BadRequest, match="load_adapter"):
            await it.client().call(edit)
        route, request = it.requestor.routes.named["r"].entry, TextCompletionRequest(prompt="1")
        async with it.requestor.stream(route, request, timeout=9, permit=BeginPermit(_refuse)):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await anext(copied)


@pytest.mark.parametrize("absent", ["", "a"])
@in_virtual_time
async def test_the_first_request_of_a_process_falls_back_too(absent: str) -> None:
    request = TextCompletionRequest(prompt="0")
    async with (
        opened(absent=absent, r=A_THEN_B) as it,
        Requestor(it.bus, it.config.topics, plans=it.config.plans) as fresh,
    ):
        it.models["a"].error = Unavailable("dead")
        assert (await Client(fresh, fresh.routes.named["r"].entry).call(request)).model == "b"


@in_virtual_time
async def test_no_model_is_asked_twice_by_the_first_request_of_a_process() -> None:
    async with opened(r=A_THEN_B) as it, Requestor(it.bus, it.config.topics, plans=it.config.plans) as fresh:
        it.models["a"].error = it.models["b"].error = Unavailable("dead")
        with pytest.raises(Unavailable, match="dead"):
            await Client(fresh, fresh.routes.named["r"].entry).call(TextCompletionRequest(prompt="0"))
        assert it.counts() == {"a": 1, "b": 1}


@in_virtual_time
async def test_a_failure_from_before_a_pause_does_not_count_as_the_trial() -> None:
    async with opened(r=A_THEN_B) as it:
        a, now = it.models["a"], asyncio.get_running_loop().time
        a.silent, a.clocks = True, Clocks(first_token=40.0)
        early = asyncio.create_task(it.ask())
        await a.started.wait()
        a.silent, a.error = False, RateLimited("later", retry_after=35)
        await it.ask("0")
        a.forget()
        await asyncio.sleep(36)
        a.silent = True
        trial = asyncio.create_task(it.ask())
        await a.started.wait()
        assert (await early).model == "b"
        assert now() < 41
        assert it.states()["a"] == "trying"
        trial.cancel()


@in_virtual_time
async def test_processors_that_one_model_lost_do_not_count_against_the_next() -> None:
    async with opened(r=A_THEN_B) as it, it.client().stream(TextCompletionRequest(prompt="1")) as answer:
        assert isinstance(answer, AskedStream)
        answer.deaths = MAX_ATTEMPTS - 1
        await it.processors["a"].aclose()
        assert [record.model async for record in answer if record.model] == ["b"]
        assert answer.deaths == 0


async def _refuse() -> bool:
    return False
