"""The columns of the matrix: each cell asks one provider for one thing, and looks at both ends of its wire."""

import asyncio
import json
from collections.abc import Awaitable
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from tests.fakes.plan import Asked, Counts, Fault, Plan, PlannedCall
from tests.provider_matrix.asking import (
    CLOCK,
    HISTORY,
    IMAGE,
    IMAGE_URL,
    REQUEST,
    SCHEMA,
    TOOL_HISTORY,
    WEATHER,
    WHOLE,
    joined,
    responses,
    spoken,
)
from tests.provider_matrix.case import MODEL, Case, Run, Stage, Tells, staged
from tg_base.stream_guard import Clocks
from tg_schema import Sampling, TextCompletionRequest, TextCompletionResponse
from tg_schema.conversation import whole_calls
from tg_schema.errors import (
    BadRequest,
    IncompleteStream,
    NotFound,
    ProtocolError,
    ProviderAuth,
    RateLimited,
    TgError,
    Timeout,
    Unavailable,
)
from tg_schema.features import Feature

PATIENCE = 1.0
"""Seconds until a cancel must have closed the provider's socket."""


@dataclass(frozen=True)
class Cell:
    """One column.

    Attributes:
        name: its head in the table.
        run: asks, and asserts.
        feature: that the provider must announce; else `asks` must be refused before anything is sent.
        tells: that the wire must carry; else the cell is left out, or `asks` refused where it is `refusable`.
        asks: a request that needs the feature.
    """

    name: str
    run: Run
    feature: Feature | None = None
    tells: Tells | None = None
    refusable: bool = False
    asks: TextCompletionRequest = REQUEST


def expected(case: Case, cell: Cell) -> bool | None:
    """What the case announces of the cell: True = it works, False = it is refused, None = the wire cannot tell."""
    if cell.tells is not None and cell.tells not in case.tells:
        return False if cell.refusable else None
    if cell.feature is not None and cell.feature not in case.features:
        return False
    return None if case.own and cell.name not in case.own else True


async def play(case: Case, cell: Cell) -> bool | None:
    """Run one cell, and return `expected`.

    Raises:
        AssertionError: it neither works nor is it refused as announced.
    """
    supported = expected(case, cell)
    if supported is None:
        return None
    async with staged(case) as stage:
        run = case.own.get(cell.name, cell.run) if supported else _refused(cell.asks)
        await asyncio.wait_for(run(stage), 30)
    return supported


def _refused(request: TextCompletionRequest) -> Run:
    async def run(stage: Stage) -> None:
        async with stage.opened() as service:
            with pytest.raises(BadRequest):
                await responses(service, request)
        assert stage.wire.exchanges == []

    return run


async def _stream(stage: Stage) -> None:
    stage.wire.play(Plan(text=("one ", "two "), fault=Fault.STALL, after=2))
    async with stage.opened() as service, aclosing(service.on_request(REQUEST)) as stream:
        text = ""
        while text != "one two ":  # each piece leaves before the answer's end
            text += (await anext(stream)).response or ""
    stage.wire.play(Plan())
    async with stage.opened() as service:
        received = await responses(service)
    assert [record.end_of_stream for record in received] == [False] * (len(received) - 1) + [True]
    assert len(received) > 1
    assert (joined(received).response, received[-1].finish_reason) == ("Hello €!", "stop")
    await _asked_plainly(stage)


async def _whole(stage: Stage) -> None:
    async with stage.opened() as service:
        (answer,) = await responses(service, WHOLE)
    assert (answer.response, answer.finish_reason, answer.end_of_stream) == ("Hello €!", "stop", True)
    await _asked_plainly(stage)


async def _asked_plainly(stage: Stage) -> None:
    for exchange in stage.wire.exchanges:
        asked = exchange.asked
        assert asked is not None
        assert (asked.model, asked.system, spoken(asked.turns)) == (MODEL, "be brief", spoken(REQUEST.turns))
        assert (asked.tools, asked.schema, asked.json) == ((), None, False)


async def _length(stage: Stage) -> None:
    stage.wire.play(Plan(finish="length"))
    async with stage.opened() as service:
        received = await responses(service, _sampling(temperature=0.5, max_tokens=9))
    assert received[-1].finish_reason == "length"
    asked = stage.wire.exchanges[0].asked
    assert asked is not None
    assert (asked.sampling.temperature, asked.sampling.max_tokens) == (0.5, 9)


async def _history(stage: Stage) -> None:
    await _seen(stage, HISTORY)
    asked = stage.wire.exchanges[0].asked
    assert asked is not None
    assert asked.system == "be brief"


async def _images(stage: Stage) -> None:
    await _seen(stage, IMAGE)


async def _image_urls(stage: Stage) -> None:
    await _seen(stage, IMAGE_URL)


async def _seen(stage: Stage, request: TextCompletionRequest) -> None:
    """Ask, and compare the conversation at the provider's end with ours."""
    before = len(stage.wire.exchanges)
    async with stage.opened() as service:
        assert joined(await responses(service, request)).response == "Hello €!"
    asked = stage.wire.exchanges[before].asked
    assert asked is not None
    assert spoken(asked.turns) == spoken(request.turns)


_CALLS = (PlannedCall("weather", ('{"ci', 'ty":"Kö', 'ln"}')), PlannedCall("clock", ("{}",), id="call_2"))


async def _tools(stage: Stage) -> None:
    planned = _CALLS if "parallel_calls" in stage.case.tells else _CALLS[:1]
    stage.wire.play(Plan(text=("I look. ",), calls=planned, finish="tool_calls"))
    required = "required" if "tool_choice" in stage.case.tells else None
    for streaming in (True, False):
        request = TextCompletionRequest(
            prompt="weather?", tools=(WEATHER, CLOCK), tool_choice=required, streaming=streaming
        )
        async with stage.opened() as service:
            received = await responses(service, request)
        calls = whole_calls(call for record in received for call in record.tool_calls)
        assert [(call.name, json.loads(call.arguments or "{}")) for call in calls] == [
            (call.name, json.loads("".join(call.arguments))) for call in planned
        ]
        assert (joined(received).response, received[-1].finish_reason) == ("I look. ", "tool_calls")
        assert all(call.id for call in calls)
        assert len({call.id for call in calls}) == len(planned)
        if "call_ids" in stage.case.tells:
            assert [call.id for call in calls] == [call.id for call in planned]
        asked = stage.wire.exchanges[-1].asked
        assert asked is not None
        assert [(tool.name, tool.description) for tool in asked.tools] == [
            (tool.name, tool.description) for tool in request.tools
        ]
        assert asked.tools[0].parameters == SCHEMA
        assert asked.tool_choice == required


async def _tool_results(stage: Stage) -> None:
    stage.wire.play(Plan())
    await _seen(stage, TOOL_HISTORY)
    asked = stage.wire.exchanges[0].asked
    assert asked is not None
    results = [turn for turn in asked.turns if turn.role == "tool"]
    assert all(turn.tool_call_id or turn.name for turn in results)
    if "call_ids" in stage.case.tells:
        assert [turn.tool_call_id for turn in results] == ["call_1", "call_2"]
    for choice in (None, "auto"):
        assert (await _chosen(stage, choice)).tool_choice in {None, "auto"}
    asked = await _chosen(stage, "none")  # said so, or the tools are not even named
    assert asked.tool_choice == "none" or not asked.tools


async def _tool_choice(stage: Stage) -> None:
    for choice in ("weather", "required"):
        assert (await _chosen(stage, choice)).tool_choice == choice


async def _chosen(stage: Stage, choice: str | None) -> Asked:
    async with stage.opened() as service:
        await responses(service, choosing(choice))
    asked = stage.wire.exchanges[-1].asked
    assert asked is not None
    return asked


def choosing(choice: str | None) -> TextCompletionRequest:
    """A question with tools at hand, and this choice."""
    return TextCompletionRequest(prompt="weather?", tools=(WEATHER, CLOCK), tool_choice=choice, streaming=True)


_ANSWER = ('{"city"', ':"Kö', 'ln"}')


async def _schema(stage: Stage) -> None:
    stage.wire.play(Plan(text=_ANSWER))
    for streaming in (True, False):
        async with stage.opened() as service:
            received = await responses(
                service, TextCompletionRequest(prompt="where?", schema=SCHEMA, streaming=streaming)
            )
        assert json.loads(joined(received).response or "") == {"city": "Köln"}
        assert received[-1].finish_reason == "stop"
        assert joined(received).tool_calls == ()
        asked = stage.wire.exchanges[-1].asked
        assert asked is not None
        assert asked.schema == SCHEMA


async def _json(stage: Stage) -> None:
    stage.wire.play(Plan(text=_ANSWER))
    async with stage.opened() as service:
        received = await responses(service, TextCompletionRequest(prompt="where?", response_format="json"))
    assert json.loads(joined(received).response or "") == {"city": "Köln"}
    asked = stage.wire.exchanges[-1].asked
    assert asked is not None
    assert asked.json


def _sampling(**fields: float) -> TextCompletionRequest:
    return TextCompletionRequest(prompt="p", sampling=Sampling(**fields), streaming=True)  # type: ignore[arg-type]


def _field(name: str, request: TextCompletionRequest) -> Run:
    async def run(stage: Stage) -> None:
        async with stage.opened() as service:
            await responses(service, request)
        asked = stage.wire.exchanges[0].asked
        assert asked is not None
        assert getattr(asked.sampling, name) == getattr(request.sampling, name)

    return run


async def _usage(stage: Stage) -> None:
    counts = Counts()
    stage.wire.play(Plan(reasoning=("hm",), counts=counts))
    async with stage.opened() as service:
        for request in (REQUEST, WHOLE):
            answer = joined(await responses(service, request))
            assert (answer.in_token, answer.out_token) == (counts.tokens_in, counts.tokens_out)
            assert answer.cached_token == (counts.cached if "cached" in stage.case.tells else None)
            assert answer.reasoning_token == (counts.reasoning if "reasoning_count" in stage.case.tells else None)
    stage.wire.play(Plan(counts=Counts(0, 0, 0, 0)))
    async with stage.opened() as service:
        answer = joined(await responses(service))
    assert (answer.in_token, answer.out_token) == (0, 0)
    stage.wire.play(Plan(counts=None))
    async with stage.opened(clocks={"idle": 2}) as service:
        answer = joined(await responses(service))
    assert (answer.in_token, answer.out_token, answer.cached_token) == (None, None, None)


def _part(name: str, count: int) -> Run:
    """A part of the usage, in both modes."""

    async def run(stage: Stage) -> None:
        async with stage.opened() as service:
            for request in (REQUEST, WHOLE):
                assert getattr(joined(await responses(service, request)), name) == count

    return run


async def _reasoning(stage: Stage) -> None:
    stage.wire.play(Plan(reasoning=("let me ", "think")))
    async with stage.opened() as service:
        for request in (REQUEST, WHOLE):
            answer = joined(await responses(service, request))
            assert (answer.response, answer.reasoning) == ("Hello €!", "let me think")


async def _error_before(stage: Stage) -> None:
    for kind in (BadRequest, ProviderAuth, NotFound, RateLimited, Unavailable):
        for request in (REQUEST, WHOLE):
            stage.wire.play(Plan(fault=Fault.REFUSE, error=kind))
            async with stage.opened() as service:
                await _fails(responses(service, request), kind)
    asked = len(stage.wire.exchanges)
    stage.wire.play(Plan(fault=Fault.REFUSE, error=RateLimited, retry_after=0), Plan())
    async with stage.opened(tries=2) as service:
        assert joined(await responses(service)).response == "Hello €!"
    assert len(stage.wire.exchanges) == asked + 2


async def _retry_after(stage: Stage) -> None:
    stage.wire.play(Plan(fault=Fault.REFUSE, error=RateLimited, retry_after=90))
    async with stage.opened(tries=3) as service:
        error = await _fails(responses(service), RateLimited)
    assert error.retry_after == 90
    assert len(stage.wire.exchanges) == 1


async def _fails(awaitable: Awaitable[object], kind: type[TgError]) -> TgError:
    with pytest.raises(TgError) as caught:
        await awaitable
    assert type(caught.value) is kind, caught.value
    return caught.value


async def _error_in_the_middle(stage: Stage) -> None:
    stage.wire.play(Plan(fault=Fault.ERROR, after=1))
    await _cut_short(stage, Unavailable)


async def _early_end(stage: Stage) -> None:
    stage.wire.play(Plan(fault=Fault.END, after=1))
    await _cut_short(stage, IncompleteStream)


async def _broken_connection(stage: Stage) -> None:
    stage.wire.play(Plan(fault=Fault.ABORT, after=1))
    await _cut_short(stage, IncompleteStream)


async def _garbage(stage: Stage) -> None:
    stage.wire.play(Plan(fault=Fault.GARBAGE, after=1))
    await _cut_short(stage, ProtocolError)


async def _cut_short(stage: Stage, kind: type[TgError]) -> None:
    """The text comes, then the error; and nothing is tried again once something was sent."""
    received: list[TextCompletionResponse] = []
    async with stage.opened(tries=3) as service:
        await _fails(responses(service, into=received), kind)
    assert "".join(record.response or "" for record in received) == "Hel"
    assert not any(record.end_of_stream for record in received)
    assert len(stage.wire.exchanges) == 1
    async with stage.opened() as service:
        await _fails(responses(service, WHOLE), kind)


async def _keep_alive_only(stage: Stage) -> None:
    clocks = Clocks(first_token=20, idle=0.2)
    stage.wire.play(Plan(fault=Fault.KEEP_ALIVE, after=1))
    async with stage.opened(clocks=clocks) as service:
        error = await _fails(responses(service), Timeout)
    assert "no content" in error.message
    await asyncio.wait_for((await stage.wire.exchange(0)).left.wait(), PATIENCE)
    stage.wire.play(Plan(), Plan(fault=Fault.KEEP_ALIVE))
    async with stage.opened(clocks=Clocks(first_token=0.5)) as service:
        async with aclosing(service.generate_content_stream(REQUEST)) as stream:  # loads what the SDK loads late
            async for _ in stream:
                pass
        error = await _fails(responses(service), Timeout)
    assert "first token" in error.message
    await asyncio.wait_for((await stage.wire.exchange(2)).left.wait(), PATIENCE)


async def _cancel(stage: Stage) -> None:
    async with stage.opened() as service:
        plans = (Plan(fault=Fault.SILENCE), Plan(fault=Fault.STALL), Plan(fault=Fault.STALL, after=1))
        for number, plan in enumerate(plans):
            stage.wire.play(plan)
            task = asyncio.create_task(responses(service))
            exchange = await stage.wire.exchange(number)
            await exchange.began.wait()
            task.cancel()
            await asyncio.wait_for(exchange.left.wait(), PATIENCE)
            with pytest.raises(asyncio.CancelledError):
                await task
        stage.wire.play(Plan(fault=Fault.STALL, after=1))
        async with aclosing(service.on_request(REQUEST)) as stream:
            assert (await anext(stream)).response == "Hel"
        await asyncio.wait_for((await stage.wire.exchange(3)).left.wait(), PATIENCE)
        stage.wire.play(Plan())
        assert joined(await responses(service)).response == "Hello €!"


async def _split_utf8(stage: Stage) -> None:
    text = ("Grüße ", "\u2028", "\u0085", "👩‍👩‍👧", "\\n\n\r\n", '"')
    for cut in (1, 3, 64):
        stage.wire.play(Plan(text=text, cut=cut))
        async with stage.opened() as service:
            assert joined(await responses(service)).response == "".join(text)


async def _models(stage: Stage) -> None:
    plan = Plan()
    stage.wire.play(plan)
    async with stage.opened() as service:
        (answer,) = await responses(service, TextCompletionRequest(operation="list-models"))
    assert [model.id for model in answer.models] == [model.id for model in plan.models]


_TOP_P, _TOP_K, _SEED = _sampling(top_p=0.5), _sampling(top_k=7), _sampling(seed=7)
_STOP = TextCompletionRequest(prompt="p", sampling=Sampling(stop=("END",)), streaming=True)
_PENALTIES = _sampling(presence_penalty=0.25, frequency_penalty=0.5)
_LOGPROBS = _sampling(logprobs=1)

CELLS: tuple[Cell, ...] = (
    Cell("stream", _stream),
    Cell("whole", _whole),
    Cell("length", _length),
    Cell("history", _history, "history", asks=HISTORY),
    Cell("tools", _tools, "tools", asks=choosing(None)),
    Cell("tool choice", _tool_choice, "tools", "tool_choice", refusable=True, asks=choosing("weather")),
    Cell("tool results", _tool_results, "tools", asks=TOOL_HISTORY),
    Cell("schema", _schema, "schema", asks=TextCompletionRequest(prompt="p", schema=SCHEMA)),
    Cell("json", _json, "json", asks=TextCompletionRequest(prompt="p", response_format="json")),
    Cell("images", _images, "images", asks=IMAGE),
    Cell("image URLs", _image_urls, "images", "image_urls", refusable=True, asks=IMAGE_URL),
    Cell("stop", _field("stop", _STOP), "stop", asks=_STOP),
    Cell("seed", _field("seed", _SEED), "seed", asks=_SEED),
    Cell("top_p", _field("top_p", _TOP_P), "top_p", asks=_TOP_P),
    Cell("top_k", _field("top_k", _TOP_K), "top_k", asks=_TOP_K),
    Cell("penalties", _field("presence_penalty", _PENALTIES), "penalties", asks=_PENALTIES),
    Cell("logprobs", _field("logprobs", _LOGPROBS), "logprobs", asks=_LOGPROBS),
    Cell("reasoning", _reasoning, tells="reasoning"),
    Cell("usage", _usage),
    Cell("cached tokens", _part("cached_token", Counts().cached), tells="cached"),
    Cell("reasoning tokens", _part("reasoning_token", Counts().reasoning), tells="reasoning_count"),
    Cell("models", _models, tells="models"),
    Cell("error before", _error_before),
    Cell("Retry-After", _retry_after, tells="retry_after"),
    Cell("error in the middle", _error_in_the_middle, tells="error_event"),
    Cell("early end", _early_end),
    Cell("broken connection", _broken_connection),
    Cell("garbage", _garbage),
    Cell("keep-alive only", _keep_alive_only),
    Cell("cancel", _cancel),
    Cell("split UTF-8", _split_utf8),
)
