"""Several answers to one prompt, which is evaluated once."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import msgspec
import pytest

from tests.llama.demo_llm import STORY, asked, at_rest, demo_service, opened, records_of, text_of, until, whole
from tg_llama.provider import LlamaCpp
from tg_schema import TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import BadRequest, Unavailable

pytestmark = pytest.mark.model

FOUR = asked(STORY, n=4, seed=11, max_tokens=40)


@pytest.fixture(scope="module")
def service() -> Iterator[LlamaCpp]:
    with demo_service(engines=2) as service:
        yield service


def answers_of(records: list[TextCompletionResponse]) -> dict[int, TextCompletionResponse]:
    return {record.index: record for record in TextCompletionResponse.arrange(records)}


async def test_each_answer_is_that_of_its_own_seed(service: LlamaCpp) -> None:
    alone = [await whole(service, asked(STORY, seed=11 + index, max_tokens=40)) for index in range(4)]
    assert len({answer.response for answer in alone}) > 1
    for streaming in (True, False):
        records = await records_of(service, msgspec.structs.replace(FOUR, streaming=streaming))
        answers = answers_of(records)
        assert [answers[index].response for index in range(4)] == [answer.response for answer in alone]
        assert [answers[index].seed for index in range(4)] == [11, 12, 13, 14]
        assert {answer.finish_reason for answer in answers.values()} == {answer.finish_reason for answer in alone}
        assert (answers[3].in_token, answers[3].out_token) == (
            alone[0].in_token,
            sum(answer.out_token or 0 for answer in alone),
        )


@pytest.mark.parametrize("engines", [1, 2])
async def test_the_prompt_is_evaluated_once(engines: int) -> None:
    async with opened(engines=engines) as service:
        records = await records_of(service, asked("A fox " * 100, n=8, max_tokens=2))
        assert (records[-1].in_token or 0) > 100
        assert (await at_rest(service)).prompt_tokens == (records[-1].in_token or 0) + 7, "and its last token by each"


async def test_a_model_with_fewer_slots_answers_in_turn() -> None:
    async with opened(slots=2, waiting=0, engines=1) as service:
        answers = answers_of(await records_of(service, FOUR))
        assert [answers[index].seed for index in range(4)] == [11, 12, 13, 14]


async def test_all_answers_have_what_the_request_asks(service: LlamaCpp) -> None:
    asking = asked("Fox", n=2, seed=1, max_tokens=3, logprobs=1, prompt_logprobs=0, ignore_eos=True)
    request = msgspec.structs.replace(asking, raw=True, echo=True)
    records = await records_of(service, request)
    answers = answers_of(records)
    for answer in answers.values():
        assert answer.response == "Fox" + "".join(token.text for token in answer.tokens)
        assert len(answer.tokens) == 3
        first = next(record for record in records if record.index == answer.index)
        assert first.prompt_tokens == answer.prompt_tokens == answers[0].prompt_tokens, "before the first text"
    assert answers[0].prompt_tokens


async def test_the_best_of_several_is_the_most_probable(service: LlamaCpp) -> None:
    every = answers_of(await records_of(service, asked(STORY, n=3, seed=2, max_tokens=10, logprobs=0)))
    means = {index: sum(token.logprob or 0 for token in a.tokens) / len(a.tokens) for index, a in every.items()}
    best = await whole(service, asked(STORY, best_of=3, seed=2, max_tokens=10, streaming=False))
    assert best.response == every[max(means, key=lambda index: means[index])].response


async def test_leaving_stops_all_answers(service: LlamaCpp) -> None:
    endless = asked(STORY, n=4, ignore_eos=True)
    async with aclosing(service.on_request(endless)) as stream:
        await anext(stream)
        await until(service, lambda stats: stats.running == 4)
    assert (await at_rest(service)).running == 0


async def test_leaving_at_once_stops_the_first(service: LlamaCpp) -> None:
    task = asyncio.create_task(records_of(service, asked(STORY, n=4, ignore_eos=True)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await at_rest(service)


async def test_when_the_first_fails_all_do(service: LlamaCpp) -> None:
    grammar = TextCompletionRequest(prompt="x", schema={"type": "string", "pattern": "["}, sampling=FOUR.sampling)
    with pytest.raises(BadRequest):
        await records_of(service, grammar)
    async with opened(slots=1, engines=1) as closing:
        asking = asyncio.create_task(text_of(closing, asked(STORY, n=2, ignore_eos=True)))
        await until(closing, lambda stats: stats.running == 1)
    with pytest.raises(Unavailable):
        await asking
