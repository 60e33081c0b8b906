"""A route -> its models: order, fallback, cool-down, budgets, weights and shadows, in the requestor."""

import asyncio
import math
from collections import Counter
from contextlib import suppress

import pytest

from tests.flow.route_world import opened
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.client import BeginPermit, Client, Requestor
from tg_base.client.asked_stream import AskedStream
from tg_base.client.attempts import MAX_ATTEMPTS
from tg_base.config import RouteConfig
from tg_base.llm.guard import Clocks
from tg_base.protocol.model_health import COOLING_SECONDS, MIN_FAILURES
from tg_base.telemetry import trace
from tg_schema import TextCompletionRequest, TgError, Tool
from tg_schema.errors import (
    BadRequest,
    ContentFilter,
    ContextLengthExceeded,
    IncompleteStream,
    NotFound,
    ProviderAuth,
    RateLimited,
    Timeout,
    Unavailable,
)

A_THEN_B = RouteConfig(models=("a", "b"))
ALL = RouteConfig(models=("a", "b"), fallback=("too-large", "content-filter"))


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("error", [RateLimited, Unavailable, IncompleteStream, Timeout, ProviderAuth])
@in_virtual_time
async def test_the_next_model_answers_in_place_of_a_failure(error: type[TgError], streaming: bool) -> None:
    async with opened(r=A_THEN_B) as it:
        it.models["a"].error = error("no")
        answer = await it.ask(prompt="0", streaming=streaming)
        assert (answer.model, answer.error, it.counts()) == ("b", None, {"a": 1, "b": 1})


@pytest.mark.parametrize("streaming", [True, False])
@in_virtual_time
async def test_a_model_that_says_nothing_is_given_up_by_its_own_clock(streaming: bool) -> None:
    async with opened(r=A_THEN_B) as it:
        it.models["a"].silent, it.models["a"].clocks = True, Clocks(first_token=2.0)
        assert (await it.ask(streaming=streaming)).model == "b"
        assert it.models["a"].stopped.is_set()
        assert asyncio.get_running_loop().time() < 4


@pytest.mark.parametrize("error", [ContentFilter("no"), ContextLengthExceeded("long"), BadRequest("bad")])
@in_virtual_time
async def test_only_the_named_kinds_lead_to_the_next_model(error: TgError) -> None:
    async with opened(r=A_THEN_B, all=ALL) as it:
        it.models["a"].error = error
        with pytest.raises(type(error)):
            await it.ask(prompt="0")
        assert it.counts() == {"a": 1}
        if isinstance(error, ContentFilter | ContextLengthExceeded):
            assert (await it.ask(prompt="0", route="all")).model == "b"
        assert it.states() == {"a": "ready", "b": "ready"}


@in_virtual_time
async def test_nothing_is_asked_after_the_first_content() -> None:
    async with opened(r=A_THEN_B) as it:
        it.models["a"].error = Unavailable("gone")
        texts: list[str] = []
        with pytest.raises(Unavailable, match="gone"):
            await it.read(TextCompletionRequest(prompt="2", streaming=True), texts)
        assert ("".join(texts), it.counts()) == ("0 1 ", {"a": 1})


@in_virtual_time
async def test_a_dead_model_is_left_alone_and_comes_back() -> None:
    async with opened(r=A_THEN_B) as it:
        now = asyncio.get_running_loop().time
        it.models["a"].error = Unavailable("dead")
        for _ in range(240):
            assert (await it.ask(prompt="0")).model == "b"
            await asyncio.sleep(0.25)
        assert now() >= 60
        assert len(it.models["a"].requests) <= 5
        it.models["a"].error = None
        await asyncio.sleep(2 * COOLING_SECONDS)
        assert it.states()["a"] == "trying"
        answers = [(await it.ask(prompt="0")).model for _ in range(3)]
        assert (answers, it.states()["a"]) == (["a"] * 3, "ready")


@in_virtual_time
async def test_many_at_once_try_a_dead_model_only_once_after_its_pause() -> None:
    async with opened(r=A_THEN_B) as it:
        it.models["a"].error = Unavailable("dead")
        for _ in range(MIN_FAILURES):
            await it.ask(prompt="0")
        await asyncio.sleep(COOLING_SECONDS)
        it.models["a"].requests.clear()
        answers = await asyncio.gather(*(it.ask(prompt="0") for _ in range(20)))
        assert (Counter(each.model for each in answers), len(it.models["a"].requests)) == ({"b": 20}, 1)


@in_virtual_time
async def test_a_probe_that_is_left_frees_its_place() -> None:
    async with opened(r=A_THEN_B) as it:
        a = it.models["a"]
        a.error = RateLimited("later", retry_after=7)
        await it.ask(prompt="0")
        await asyncio.sleep(8)
        a.forget()
        a.silent = True
        leaving = asyncio.create_task(it.ask())
        await a.started.wait()
        assert (await it.ask()).model == "b"
        leaving.cancel()
        await a.stopped.wait()
        a.silent = False
        assert (await it.ask()).model == "a"


@in_virtual_time
async def test_a_model_rests_for_its_retry_after() -> None:
    async with opened(r=A_THEN_B) as it:
        it.models["a"].error = RateLimited("later", retry_after=7)
        assert (await it.ask(prompt="0")).model == "b"
        (state, _) = it.requestor.routes.explain("r")
        assert (state.state, state.reason, 6 < state.seconds <= 7) == ("cooling", "rate-limited", True)
        it.models["a"].error = None
        assert [(await it.ask()).model for _ in range(2)] == ["b", "b"]
        await asyncio.sleep(7)
        assert (await it.ask()).model == "a"


@in_virtual_time
async def test_a_busy_model_that_dies_is_asked_four_times() -> None:
    async with opened(r=A_THEN_B) as it:
        for _ in range(60):
            assert (await it.ask(prompt="0")).model == "a"
        a = it.models["a"]
        asked, a.error = len(a.requests), Unavailable("down")
        for _ in range(60):
            assert (await it.ask(prompt="0")).model == "b"
        assert len(a.requests) - asked == 4


@in_virtual_time
async def test_a_model_that_often_fails_goes_on_although_four_in_turn_do() -> None:
    async with opened(r=A_THEN_B) as it:
        for turn in range(60):
            fails = turn % 10 == 9 or turn in range(50, 54)
            it.models["a"].error = Unavailable("down") if fails else None
            assert (await it.ask(prompt="0")).model == ("b" if fails else "a")
        assert it.states() == {"a": "ready", "b": "ready"}


@in_virtual_time
async def test_if_all_rest_the_first_to_be_ready_is_asked_all_the_same() -> None:
    async with opened(r=A_THEN_B) as it:
        it.models["a"].error = RateLimited("later", retry_after=9)
        it.models["b"].error = RateLimited("soon", retry_after=3)
        with pytest.raises(RateLimited, match="soon"):
            await it.ask(prompt="0")
        with pytest.raises(RateLimited, match="soon"):
            await it.ask(prompt="0")
        assert it.counts() == {"a": 1, "b": 2}


@pytest.mark.parametrize("silent", ["a", "b"])
@in_virtual_time
async def test_leaving_stops_whichever_model_runs(silent: str) -> None:
    async with opened(r=A_THEN_B) as it:
        it.models["a"].error = Unavailable("dead") if silent == "b" else None
        it.models[silent].silent = True
        asking = asyncio.create_task(it.ask(prompt="0"))
        await it.models[silent].started.wait()
        asking.cancel()
        await it.models[silent].stopped.wait()
        with suppress(asyncio.CancelledError):
            await asking
        assert set(it.counts()) == {"a", silent}
        assert not +it.requestor.admission.unanswered


@in_virtual_time
async def test_a_budget_of_tries_and_of_time() -> None:
    few, quick = RouteConfig(models=("a", "b", "c"), tries=2), RouteConfig(models=("a", "b"), seconds=1.0)
    async with opened(few=few, quick=quick) as it:
        for model in ("a", "b"):
            it.models[model].error = Unavailable(f"{model} is dead")
        with pytest.raises(Unavailable, match="b is dead"):
            await it.ask(prompt="0", route="few")
        assert it.counts() == {"a": 1, "b": 1}
        it.models["a"].silent, it.models["a"].clocks = True, Clocks(first_token=2.0)
        with pytest.raises(Timeout):
            await it.ask(prompt="0", route="quick")
        assert it.counts() == {"a": 2, "b": 1}


@in_virtual_time
async def test_a_model_without_a_needed_feature_is_passed_over() -> None:
    async with opened(r=A_THEN_B) as it:
        b = it.processors.pop("b")
        await b.aclose()
        tools = (Tool("f", "", {"type": "object"}),)
        it.models["a"].error = Unavailable("dead")
        # Nobody else has it, so the failure of the one that does is the answer.
        with pytest.raises(Unavailable, match="dead"):
            await it.ask(prompt="0", tools=tools)
        with pytest.raises(BadRequest, match="can't do this: suffix"):
            await it.ask(prompt="0", suffix="x")


@in_virtual_time
async def test_a_fallback_without_the_feature_is_never_asked() -> None:
    tools = (Tool("f", "", {"type": "object"}),)
    async with opened(toolless="b", r=RouteConfig(models=("a", "b", "c")), s=A_THEN_B) as it:
        it.models["a"].error = Unavailable("dead")
        assert (await it.ask(prompt="0", tools=tools)).model == "c"
        with pytest.raises(Unavailable, match="dead"):
            await it.ask(prompt="0", tools=tools, route="s")
        assert "b" not in it.counts()
        assert (await it.ask(prompt="0")).model == "b"


@in_virtual_time
async def test_a_model_without_a_processor_is_passed_over() -> None:
    async with opened(absent="a", r=A_THEN_B) as it:
        assert [(await it.ask()).model for _ in range(2)] == ["b", "b"]
        assert it.states() == {"a": "absent", "b": "ready"}


@in_virtual_time
async def test_a_request_of_a_processor_that_ends_goes_to_the_next_model() -> None:
    async with opened(r=A_THEN_B) as it:
        it.models["a"].silent = True
        asking = asyncio.create_task(it.ask())
        await it.models["a"].started.wait()
        await it.processors["a"].aclose()
        assert (await asking).model == "b"


@in_virtual_time
async def test_a_full_queue_leads_to_the_next_model() -> None:
    async with opened(capacity=1, r=A_THEN_B, behind=RouteConfig(models=("c", "a"))) as it:
        it.models["a"].silent = True
        bounded = it.client(bounded=True)
        waiting = [asyncio.create_task(bounded.call(TextCompletionRequest(prompt="1"))) for _ in range(257)]
        await until(lambda: it.requestor.admission.unanswered[it.requestor.routes.named["r"].entry.request] == 257)
        assert (await bounded.call(TextCompletionRequest(prompt="1"))).model == "b"
        # Behind a failure too: the answer is then what failed.
        it.models["c"].error = Unavailable("dead")
        with pytest.raises(Unavailable, match="dead"):
            await it.client("behind", bounded=True).call(TextCompletionRequest(prompt="0"))
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


@in_virtual_time
async def test_weights_and_routes_of_routes() -> None:
    canary = RouteConfig(weights={"a": 90, "b": 10})
    async with opened(canary=canary, r=RouteConfig(models=("canary", "c"))) as it:
        counts = Counter([(await it.ask()).model for _ in range(400)])
        assert set(counts) == {"a", "b"}
        assert 10 <= counts["b"] <= 80
        it.models["a"].error = it.models["b"].error = Unavailable("dead")
        assert (await it.ask(prompt="0")).model == "c"


@in_virtual_time
async def test_an_alias_is_a_route_of_one_model() -> None:
    async with opened(r=RouteConfig(models=("a",))) as it:
        assert (await it.ask()).model == "a"
        it.requestor.routes.replace({})
        with pytest.raises(NotFound, match='no route "r" any more'):
            async with it.requestor.stream(it.config.plans["r"].entry, TextCompletionRequest(prompt="1"), timeout=5):
                pass


@pytest.mark.parametrize("fault", ["none", "dead", "silent", "absent"])
@in_virtual_time
async def test_a_shadow_neither_delays_nor_fails_an_answer(fault: str) -> None:
    async with opened(absent="b" if fault == "absent" else "", r=RouteConfig(models=("a",), shadow="b")) as it:
        b = it.models["b"]
        b.error, b.silent = Unavailable("dead") if fault == "dead" else None, fault == "silent"
        started = asyncio.get_running_loop().time()
        assert (await it.ask()).model == "a"
        assert asyncio.get_running_loop().time() - started < 1
        if fault != "absent":
            await b.started.wait()
            assert b.requests[0].prompt == "1"


@in_virtual_time
async def test_the_shadow_of_a_request_that_is_left_is_stopped() -> None:
    async with opened(r=RouteConfig(models=("a",), shadow="b")) as it:
        for model in ("a", "b"):
            it.models[model].silent = True
        asking = asyncio.create_task(it.ask())
        for model in ("a", "b"):
            await it.models[model].started.wait()
        asking.cancel()
        for model in ("a", "b"):
            await it.models[model].stopped.wait()


@in_virtual_time
async def test_a_shadow_gets_its_share() -> None:
    async with opened(r=RouteConfig(models=("a",), shadow="b", shadow_percent=20.0)) as it:
        for _ in range(300):
            await it.ask()
        assert 25 <= len(it.models["b"].requests) <= 100


@pytest.mark.parametrize("wait", [0.0, -1.0, math.nan])
@in_virtual_time
async def test_a_time_to_wait_that_is_none_does_not_cool_a_model(wait: float) -> None:
    async with opened(r=A_THEN_B) as it:
        it.models["a"].error = RateLimited("later", retry_after=wait)
        assert (await it.ask(prompt="0")).model == "b"
        assert it.states() == {"a": "ready", "b": "ready"}


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
                await asyncio.wait_for(anext(copied), 5)


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
