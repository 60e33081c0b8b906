"""llama.cpp and the demo model in this process: no wire, so that the cells ask the real engines and the demo model."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from tests.fakes.plan import Exchange, Plan
from tests.llama.demo_llm import ENDLESS, STORY, asked, at_rest
from tests.provider_matrix.asking import CLOCK, TOOL_HISTORY, WEATHER, joined, responses
from tests.provider_matrix.case import MODEL, TELLS, Case, Run, Stage
from tests.until import until
from tg_llama.demo_provider import Demo
from tg_llama.provider import LlamaCpp
from tg_schema import Message, Sampling, TextCompletionRequest, TextCompletionResponse

PATIENCE = 1.0
"""Seconds until a cancel must have freed its slot."""


class NoWire:
    """What there is to see between us and the engine: nothing."""

    def __init__(self) -> None:
        self.url = ""
        self.exchanges: list[Exchange] = []

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["NoWire"]:
        """Nothing to start."""
        yield cls()

    def play(self, *plans: Plan) -> None:
        """Nobody plays."""

    async def exchange(self, number: int) -> Exchange:
        """There are none."""
        raise LookupError(f"there is no exchange {number} without a wire")


async def _answer(stage: Stage, request: TextCompletionRequest) -> TextCompletionResponse:
    async with stage.opened() as service:
        return joined(await responses(service, request))


async def _stream(stage: Stage) -> None:
    async with stage.opened() as service:
        counted = await responses(service, asked("Count to 5.", temperature=0))
        told = await responses(service, asked(STORY, max_tokens=100, temperature=0))
    assert joined(counted).response == "1, 2, 3, 4, 5"
    # Tokens that come faster than they are read share a record: only a longer answer surely comes in pieces.
    assert len(told) > 2


async def _whole(stage: Stage) -> None:
    async with stage.opened() as service:
        (answer,) = await responses(service, asked("Count to 5.", temperature=0, streaming=False))
    assert (answer.response, answer.finish_reason) == ("1, 2, 3, 4, 5", "stop")


async def _length(stage: Stage) -> None:
    answer = await _answer(stage, asked(STORY, max_tokens=3))
    assert (answer.out_token, answer.finish_reason) == (3, "length")


async def _history(stage: Stage) -> None:
    turns = (Message("user", "Hello!"), Message("assistant", "Hi."))
    question = asked("Count to 5.", temperature=0, max_tokens=4)
    alone = await _answer(stage, question)
    longer = TextCompletionRequest(messages=turns, prompt=question.prompt, sampling=question.sampling)
    answer = await _answer(stage, longer)
    assert (answer.in_token or 0) > (alone.in_token or 0) + 2
    assert answer.finish_reason is not None


async def _schema(stage: Stage) -> None:
    schema = {"type": "object", "properties": {"known": {"type": "boolean"}}, "required": ["known"]}
    answer = await _answer(
        stage, TextCompletionRequest(prompt="Is it?", schema={**schema, "additionalProperties": False})
    )
    assert json.loads(answer.response or "")["known"] in {True, False}


async def _json(stage: Stage) -> None:
    request = TextCompletionRequest(prompt="Who?", response_format="json", sampling=Sampling(max_tokens=50))
    answer = await _answer(stage, request)
    assert (answer.response or "")[0] in "{["
    assert answer.finish_reason == "length" or isinstance(json.loads(answer.response or ""), dict)


def _calling(prompt: str, choice: str | None = None) -> TextCompletionRequest:
    sampling = Sampling(temperature=0, max_tokens=60)
    return TextCompletionRequest(prompt=prompt, tools=(WEATHER, CLOCK), tool_choice=choice, sampling=sampling)


async def _tools(stage: Stage) -> None:
    # A name that the demo model was trained with.
    known = msgspec.structs.replace(WEATHER, name="get_weather")
    asked = msgspec.structs.replace(_calling("What is the weather in Oslo?"), tools=(known, CLOCK))
    answer = await _answer(stage, asked)
    assert answer.finish_reason == "tool_calls"
    ((call_id, name),) = [(call.id, call.name) for call in answer.tool_calls]
    assert call_id
    assert name == "get_weather"


async def _tool_choice(stage: Stage) -> None:
    forced = await _answer(stage, _calling("Hello!", WEATHER.name))
    assert [call.name for call in forced.tool_calls] == [WEATHER.name], forced
    assert (await _answer(stage, _calling("Hello!", "required"))).tool_calls
    assert not (await _answer(stage, _calling("Count to 5.", "none"))).tool_calls


async def _tool_results(stage: Stage) -> None:
    asked = msgspec.structs.replace(TOOL_HISTORY, operation="tokenize", streaming=False)
    async with stage.opened() as service:
        (told,) = await responses(service, asked)
        assert isinstance(service, LlamaCpp)
        text = service.engine.model.detokenize(told.ids)
    assert text.count("<|im_start|>tool\n") == 2
    assert "<|im_start|>tool\nit has failed<|im_end|>" in text


async def _tool_results_in_numpy(stage: Stage) -> None:
    async with stage.opened() as service:
        assert isinstance(service, Demo)
        ids = await service._prompt(TOOL_HISTORY, 10_000)
        text = b"".join([service.engine.model.pieces[token] for token in ids]).decode()
    assert text.count("tool\n") == 2
    assert "tool\nit has failed" in text


async def _stop(stage: Stage) -> None:
    answer = await _answer(stage, asked("Count to 5.", temperature=0, stop=(", 3",)))
    assert (answer.response, answer.finish_reason) == ("1, 2", "stop")


def _greedy(**sampling: Any) -> Run:
    """Sampling that leaves only the likeliest token says what temperature 0 says."""

    async def run(stage: Stage) -> None:
        likeliest = await _answer(stage, asked(STORY, temperature=0, max_tokens=20))
        assert (await _answer(stage, asked(STORY, max_tokens=20, **sampling))).response == likeliest.response

    return run


async def _seed(stage: Stage) -> None:
    answers = [await _answer(stage, asked(STORY, seed=seed, max_tokens=20)) for seed in (7, 7, 8, 9, 10)]
    assert answers[0].response == answers[1].response
    assert len({answer.response for answer in answers}) > 1


async def _penalties(stage: Stage) -> None:
    plain = await _answer(stage, asked(STORY, temperature=0))
    penalized = await _answer(stage, asked(STORY, temperature=0, presence_penalty=2, frequency_penalty=2))
    assert plain.response != penalized.response


async def _logprobs(stage: Stage) -> None:
    answer = await _answer(stage, asked("Count to 5.", temperature=0, logprobs=2))
    assert "".join(token.text for token in answer.tokens) == answer.response
    assert all(token.logprob is not None and token.logprob <= 0 and len(token.top) == 2 for token in answer.tokens)


async def _usage(stage: Stage) -> None:
    answer = await _answer(stage, asked(STORY, max_tokens=5))
    assert (answer.out_token, answer.cached_token) == (5, 0)
    assert (answer.in_token or 0) > 5


async def _cancel(stage: Stage) -> None:
    async with stage.opened() as service:
        assert isinstance(service, LlamaCpp)
        async with aclosing(service.on_request(ENDLESS)) as stream:
            await anext(stream)
        stats = await asyncio.wait_for(at_rest(service), PATIENCE)
        assert stats.running == 0


async def _cancel_in_numpy(stage: Stage) -> None:
    async with stage.opened() as service:
        assert isinstance(service, Demo)
        async with aclosing(service.on_request(ENDLESS)) as stream:
            await anext(stream)
        await until(lambda: not service.engine.stats().running, PATIENCE)


async def _models(stage: Stage) -> None:
    answer = await _answer(stage, TextCompletionRequest(operation="list-models"))
    assert [model.id for model in answer.models] == [MODEL]


CELLS: dict[str, Run] = {
    "stream": _stream,
    "whole": _whole,
    "length": _length,
    "history": _history,
    "schema": _schema,
    "json": _json,
    "tools": _tools,
    "tool choice": _tool_choice,
    "tool results": _tool_results,
    "stop": _stop,
    "seed": _seed,
    "top_p": _greedy(top_p=0),
    "top_k": _greedy(top_k=1),
    "penalties": _penalties,
    "logprobs": _logprobs,
    "usage": _usage,
    "models": _models,
    "cancel": _cancel,
}
NUMPY = {**CELLS, "tool results": _tool_results_in_numpy, "cancel": _cancel_in_numpy}


def _case(name: str, cells: dict[str, Run]) -> Case:
    tells = TELLS - {"reasoning", "retry_after", "error_event", "image_urls"}
    return Case(name, NoWire.running, options=lambda _: {}, tells=tells, own=cells)


CASES = (_case("demo", NUMPY), _case("llama-cpp", CELLS))
