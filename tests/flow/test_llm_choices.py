"""Several answers to one request: of a provider that has n, and of one that is asked n times."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from tests.fakes.answers_llm import AnswersLlm
from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_base.llm.merged_streams import MAX_QUEUED_CHUNKS
from tg_schema import COMMON_FEATURES, FinishReason, Sampling, TextCompletionRequest, TextCompletionResponse, Token
from tg_schema.errors import BadRequest, IncompleteStream, ProtocolError, RateLimited, SchemaViolation, Unavailable

PERSON = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


class HasN(AnswersLlm):
    """Gives all answers in one stream."""

    features = COMMON_FEATURES | {"n"}


def asked(*, streaming: bool = True, **fields: Any) -> TextCompletionRequest:
    sampling = {name: fields.pop(name) for name in Sampling.__struct_fields__ if name in fields}
    return TextCompletionRequest(prompt="p", streaming=streaming, sampling=Sampling(**sampling), **fields)


async def ask(
    service: LlmService, request: TextCompletionRequest, told: list[TextCompletionResponse] | None = None
) -> list[TextCompletionResponse]:
    """All records; `told` has those that came before an error."""
    told = [] if told is None else told
    async with aclosing(service.on_request(request)) as stream:
        async for record in stream:
            told.append(record)
    return told


def said(text: str, *, reason: FinishReason = "stop", out: int = 2, **fields: Any) -> list[LlmChunk]:
    """An answer in two chunks, its end and its usage."""
    half = len(text) // 2
    return [
        LlmChunk(text[:half], **fields),
        LlmChunk(text[half:], finish_reason=reason),
        LlmChunk(in_token=5, out_token=out),
    ]


BOTH = (
    LlmChunk("a", index=0),
    LlmChunk("x", index=1, seed=7),
    LlmChunk("b", index=0, finish_reason="length"),
    LlmChunk("y", index=1),
    LlmChunk("late", index=0, out_token=1),
    LlmChunk(index=1, finish_reason="stop", stopped_by="!"),
    LlmChunk(in_token=5, out_token=4),
)


async def test_choices_of_one_stream_say_whose_they_are_and_end_one_by_one() -> None:
    service = HasN(BOTH)
    records = await ask(service, asked(n=2))
    assert records == [
        TextCompletionResponse(response="a", model="answers"),
        TextCompletionResponse(response="x", index=1, model="answers"),
        TextCompletionResponse(response="b", model="answers"),
        TextCompletionResponse(response="", model="answers", finish_reason="length"),
        TextCompletionResponse(response="y", index=1, model="answers"),
        TextCompletionResponse(response="", index=1, model="answers", finish_reason="stop", stopped_by="!", seed=7),
        TextCompletionResponse(response="", index=1, model="answers", in_token=5, out_token=5, end_of_stream=True),
    ]
    assert [request.sampling for request in service.requests] == [Sampling(n=2)]


async def test_whole_choices_are_one_record_each_the_last_one_with_the_usage() -> None:
    first = TextCompletionResponse(response="ab", model="answers", finish_reason="length")
    last = TextCompletionResponse(
        response="xy",
        index=1,
        model="answers",
        finish_reason="stop",
        stopped_by="!",
        seed=7,
        in_token=5,
        out_token=5,
        end_of_stream=True,
    )
    assert await ask(HasN(BOTH), asked(n=2, streaming=False)) == [first, last]
    assert list(TextCompletionResponse.join(await ask(HasN(BOTH), asked(n=2)))) == [first, last]


async def test_a_provider_without_n_is_asked_n_times() -> None:
    service = AnswersLlm(said("one"), said("two", reason="length"), said("three"))
    assert "n" in service.features
    whole = await ask(service, asked(n=3, seed=2**63 - 2, streaming=False))
    assert [(record.index, record.response, record.finish_reason) for record in whole] == [
        (0, "one", "stop"),
        (1, "two", "length"),
        (2, "three", "stop"),
    ]
    assert [(record.in_token, record.out_token, record.end_of_stream) for record in whole] == [
        (None, None, False),
        (None, None, False),
        (15, 6, True),
    ]
    assert [request.sampling for request in service.requests] == [
        Sampling(seed=2**63 - 2),
        Sampling(seed=2**63 - 1),
        Sampling(seed=-(2**63)),
    ]


async def test_without_a_seed_none_is_made_up() -> None:
    service = AnswersLlm(said("one"))
    await ask(service, asked(n=2, temperature=1.0))
    assert [request.sampling for request in service.requests] == [Sampling(temperature=1.0)] * 2


async def test_the_streams_run_side_by_side() -> None:
    shown = asyncio.Event()
    service = AnswersLlm([LlmChunk("slow"), shown, LlmChunk("er", finish_reason="stop")], said("fast"))
    async with aclosing(service.on_request(asked(n=2))) as stream:
        texts = {0: "", 1: ""}
        async for record in stream:
            texts[record.index] += record.response or ""
            if record.index == 1 and record.finish_reason:
                assert texts == {0: "slow", 1: "fast"}
                shown.set()
    assert texts == {0: "slower", 1: "fast"}
    assert service.running == 0


async def test_no_more_streams_at_a_time_than_the_provider_has_capacity() -> None:
    service = AnswersLlm(said("text"), options=ProviderOptions(capacity=2))
    records = await ask(service, asked(n=7, streaming=False))
    assert [record.index for record in records] == list(range(7))
    assert service.most == 2


@pytest.mark.parametrize("streaming", [True, False])
async def test_one_that_fails_before_its_first_chunk_fails_the_request(*, streaming: bool) -> None:
    never = asyncio.Event()
    service = AnswersLlm([never], [BadRequest("no")], [never])
    with pytest.raises(BadRequest, match="no"):
        await ask(service, asked(n=3, streaming=streaming))
    assert service.running == 0


async def test_each_stream_is_tried_again_before_its_first_chunk() -> None:
    service = AnswersLlm([RateLimited("busy", retry_after=0.0)], said("one"), said("two"))
    records = await ask(service, asked(n=2, streaming=False))
    assert sorted(record.response or "" for record in records) == ["one", "two"]
    assert len(service.requests) == 3


async def test_one_that_fails_in_the_middle_ends_them_all() -> None:
    never = asyncio.Event()
    service = AnswersLlm(
        [LlmChunk("a"), never], [LlmChunk("b"), Unavailable("down")], [LlmChunk("c"), Unavailable("d")]
    )
    with pytest.raises(Unavailable):
        await ask(service, asked(n=3))
    assert service.running == 0


async def test_leaving_early_closes_every_stream() -> None:
    never = asyncio.Event()
    service = AnswersLlm([LlmChunk("a"), never])
    async with aclosing(service.on_request(asked(n=4))) as stream:
        for _ in range(4):
            await anext(stream)
        assert service.running == 4
    assert service.running == 0


async def test_a_slow_reader_holds_the_streams_up() -> None:
    service = AnswersLlm([*[LlmChunk("x", out_token=1)] * 10_000, LlmChunk(finish_reason="stop")])
    async with aclosing(service.on_request(asked(n=2))) as stream:
        await anext(stream)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert service.sent < 2 * MAX_QUEUED_CHUNKS
        records = [record async for record in stream]
    assert sum(len(record.response or "") for record in records) == 20_000 - 1


async def test_an_answer_without_end_makes_the_stream_incomplete() -> None:
    with pytest.raises(IncompleteStream):
        await ask(HasN([LlmChunk("a", finish_reason="stop"), LlmChunk("b", index=1)]), asked(n=2))
    with pytest.raises(IncompleteStream):
        await ask(AnswersLlm(said("a"), [LlmChunk("b")]), asked(n=2))


@pytest.mark.parametrize(("service", "n"), [(HasN([LlmChunk("a", index=2)]), 2), (AnswersLlm([LlmChunk(index=1)]), 1)])
async def test_an_answer_that_nobody_asked_for_is_an_error(service: LlmService, n: int) -> None:
    with pytest.raises(ProtocolError, match=f"beyond the {n}"):
        await ask(service, asked(n=n))


@pytest.mark.parametrize("streaming", [True, False])
async def test_each_answer_has_to_be_in_the_form(*, streaming: bool) -> None:
    right, wrong = said('{"name": "Ann"}'), said('{"name": 1}')
    cut = said('{"na', reason="length")
    fine = await ask(AnswersLlm(right, cut), asked(n=2, schema=PERSON, streaming=streaming))
    assert sorted(record.finish_reason for record in fine if record.finish_reason) == ["length", "stop"]
    assert fine[-1].end_of_stream
    told: list[TextCompletionResponse] = []
    with pytest.raises(SchemaViolation):
        await ask(AnswersLlm(right, wrong), asked(n=2, schema=PERSON, streaming=streaming), told)
    assert not any(record.finish_reason for record in told), "no answer is finished before all are checked"


def tokens(text: str, *logprobs: float) -> list[LlmChunk]:
    data = tuple(Token(number, "t", logprob) for number, logprob in enumerate(logprobs))
    return [LlmChunk(text, tokens=data), LlmChunk(finish_reason="stop", seed=len(logprobs)), LlmChunk(out_token=3)]


POOR, GOOD, BEST = tokens("poor", -2.0, -2.0), tokens("good", -1.0, -1.2, -0.8), tokens("best", -0.5)


@pytest.mark.parametrize("wants", [None, 0, 2])
async def test_the_best_of_several_are_returned(wants: int | None) -> None:
    service = AnswersLlm(POOR, GOOD, BEST)
    records = await ask(service, asked(n=2, best_of=3, logprobs=wants, streaming=False))
    assert [(record.index, record.response, record.seed) for record in records] == [(0, "best", 1), (1, "good", 3)]
    assert (records[-1].out_token, records[-1].end_of_stream) == (9, True)
    assert [len(record.tokens) for record in records] == ([0, 0] if wants is None else [1, 3])
    assert {request.sampling for request in service.requests} == {Sampling(logprobs=wants or 0)}


async def test_the_best_of_one_stream_and_the_only_one() -> None:
    service = HasN([BEST[0], LlmChunk("bad", index=1), *ENDS])
    (record,) = await ask(service, asked(best_of=2, streaming=False))
    assert (record.index, record.response) == (0, "best")
    assert [request.sampling for request in service.requests] == [Sampling(n=2, logprobs=0)]


ENDS = (LlmChunk(finish_reason="stop"), LlmChunk(index=1, finish_reason="stop"))


async def test_best_of_needs_log_probabilities() -> None:
    service = AnswersLlm(BEST, options=ProviderOptions(without=frozenset({"logprobs"})))
    assert "best_of" not in service.features
    with pytest.raises(BadRequest, match="best_of"):
        await ask(service, asked(best_of=2, streaming=False))


async def test_n_taken_from_a_provider_is_done_in_its_stead() -> None:
    service = HasN(said("a"), options=ProviderOptions(without=frozenset({"n"})))
    assert len(await ask(service, asked(n=2, streaming=False))) == 2
    assert len(service.requests) == 2


async def test_one_answer_is_as_it_was() -> None:
    service = AnswersLlm(said("one"))
    assert await ask(service, asked(n=1, best_of=1)) == await ask(service, TextCompletionRequest("", "p", True))
    assert service.requests[0].sampling == Sampling(n=1, best_of=1)


@pytest.mark.parametrize("streaming", [True, False])
async def test_thinking_between_texts_keeps_its_place(*, streaming: bool) -> None:
    steps = [
        LlmChunk(reasoning="first"),
        LlmChunk(signature="A:1"),
        LlmChunk("one"),
        LlmChunk(reasoning="second", signature="A:2"),
        LlmChunk("two", finish_reason="stop"),
        LlmChunk(out_token=9),
    ]
    records = TextCompletionResponse.join(await ask(AnswersLlm(steps), asked(streaming=streaming)))
    assert [(record.reasoning, record.signature, record.response) for record in records] == [
        ("first", "A:1", "one"),
        ("second", "A:2", "two"),
    ]
    assert [(record.out_token, record.finish_reason, record.end_of_stream) for record in records] == [
        (None, None, False),
        (9, "stop", True),
    ]
    whole = await AnswersLlm(steps).generate_content(asked())
    assert (whole.text, whole.reasoning, whole.out_token) == ("onetwo", "firstsecond", 9)
