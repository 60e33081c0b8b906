"""The columns for what a provider can do: each asks for one thing, and looks at both ends of the wire."""

import json
from contextlib import aclosing

import msgspec

from tests.fakes.gemini_transcript import UNSIGNED
from tests.fakes.plan import Asked, Counts, Fault, Plan, PlannedCall
from tests.provider_matrix.asking import (
    CLOCK,
    HISTORY,
    IMAGE,
    IMAGE_URL,
    LOOSE_SCHEMA,
    REQUEST,
    SCHEMA,
    TOOL_HISTORY,
    WEATHER,
    WHOLE,
    joined,
    responses,
    spoken,
    turn_of,
)
from tests.provider_matrix.case import MODEL, Run, Stage
from tests.provider_matrix.cell import Cell
from tg_base.llm import close_objects
from tg_schema import Message, Sampling, TextCompletionRequest
from tg_schema.conversation import ReasoningPart, whole_calls


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
    for streaming, schema, strict in (
        (True, SCHEMA, False),
        (False, SCHEMA, False),
        (False, SCHEMA, True),
        (False, LOOSE_SCHEMA, False),
    ):
        request = TextCompletionRequest(
            prompt="where?", schema=schema, schema_name="place", schema_strict=strict, streaming=streaming
        )
        async with stage.opened() as service:
            received = await responses(service, request)
        assert json.loads(joined(received).response or "") == {"city": "Köln"}
        assert received[-1].finish_reason == "stop"
        assert joined(received).tool_calls == ()
        asked = stage.wire.exchanges[-1].asked
        assert asked is not None
        # A provider that enforces only closed objects is sent them closed.
        assert asked.schema in (schema, close_objects(schema))
        assert asked.strict in {None, strict}


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
    stage.wire.play(Plan(counts=Counts(0, 0, 0, 0, 0)))
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


async def _rounds(stage: Stage) -> None:
    """The server refuses thinking and signatures that are missing or changed."""
    called = Plan(("I look. ",), ("let me ", "think"), redacted=True, calls=_CALLS[:1], finish="tool_calls")
    async with stage.opened(**stage.case.thinking) as service:
        stage.wire.play(called, Plan())
        request = TextCompletionRequest(prompt="weather?", tools=(WEATHER,), streaming=True)
        turn = turn_of(await responses(service, request))
        result = Message("tool", "rain", tool_call_id=turn.tool_calls[0].id, name="weather")
        follows = TextCompletionRequest(messages=(*request.turns, turn, result), tools=(WEATHER,), streaming=True)
        assert joined(await responses(service, follows)).response == "Hello €!"
    asked = stage.wire.exchanges[-1].asked
    assert asked is not None
    told = [turn for turn in asked.turns if turn.role == "assistant"]
    signed = [part.signature for turn in told for part in turn.parts if isinstance(part, ReasoningPart)]
    signed += [call.signature for turn in told for call in turn.tool_calls]
    assert any(signed)
    assert UNSIGNED not in signed


async def _count_tokens(stage: Stage) -> None:
    counts = Counts()
    stage.wire.play(Plan(counts=counts))
    async with stage.opened() as service:
        counted = await service.count_tokens(_COUNTED)
    asked = stage.wire.exchanges[0].asked
    assert asked is not None
    assert spoken(asked.turns) == spoken(TOOL_HISTORY.turns)
    assert counted == counts.tokens_in


async def _models(stage: Stage) -> None:
    plan = Plan()
    stage.wire.play(plan)
    async with stage.opened() as service:
        assert [model.id for model in await service.models()] == [model.id for model in plan.models]
        (answer,) = await responses(service, TextCompletionRequest(operation="list-models"))
    assert [model.id for model in answer.models] == [service.model]


_COUNTED = msgspec.structs.replace(TOOL_HISTORY, operation="count-tokens")
_TOP_P, _TOP_K, _SEED = _sampling(top_p=0.5), _sampling(top_k=7), _sampling(seed=7)
_STOP = TextCompletionRequest(prompt="p", sampling=Sampling(stop=("END",)), streaming=True)
_PENALTIES = _sampling(presence_penalty=0.25, frequency_penalty=0.5)
_LOGPROBS = _sampling(logprobs=1)

ANSWER_CELLS: tuple[Cell, ...] = (
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
    Cell("reasoning in rounds", _rounds, tells="rounds"),
    Cell("usage", _usage),
    Cell("cached tokens", _part("cached_token", Counts().cached), tells="cached"),
    Cell("cache writes", _part("cache_write_token", Counts().written), tells="cache_write"),
    Cell("reasoning tokens", _part("reasoning_token", Counts().reasoning), tells="reasoning_count"),
    Cell("count tokens", _count_tokens, "count_tokens", asks=_COUNTED),
    Cell("models", _models, tells="models"),
)
