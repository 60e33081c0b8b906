"""Token ids, their texts and their log-probabilities, asked of the demo model."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.llama.demo_llm import STORY, asked, demo_service, opened, text_of, whole
from tg_llama.native import context
from tg_llama.provider import LlamaCpp
from tg_schema import Message, Sampling, TextCompletionRequest, TextCompletionResponse, TgError, Token
from tg_schema.errors import BadRequest, ContextLengthExceeded, TooLarge

pytestmark = pytest.mark.model

PROMPT = "What is the capital of Italy?"


@pytest.fixture(scope="module")
def service() -> Iterator[LlamaCpp]:
    with demo_service(batch=32) as service:
        yield service


async def ids_of(service: LlamaCpp, request: TextCompletionRequest) -> tuple[int, ...]:
    return (await whole(service, request)).ids


def scoring(prompt: tuple[int, ...], scored: tuple[int, ...], **sampling: int) -> TextCompletionRequest:
    return TextCompletionRequest(operation="score", prompt_ids=prompt, scored=scored, sampling=Sampling(**sampling))  # type: ignore[arg-type]


def logprobs_of(tokens: tuple[Token, ...]) -> list[float]:
    return [token.logprob for token in tokens if token.logprob is not None]


async def test_ids_become_their_text_again(service: LlamaCpp) -> None:
    begin = service.engine.model.begin_text
    raw = begin + "<|im_start|>user\nÄ 😀 [x]<|im_end|>\n"
    tokens = await whole(service, TextCompletionRequest(operation="tokenize", raw=True, prompt=raw, token_texts=True))
    assert tuple(token.id for token in tokens.tokens) == tokens.ids
    back = TextCompletionRequest(operation="detokenize", prompt_ids=tokens.ids, token_texts=True)
    answer = await whole(service, back)
    assert answer.response == raw
    assert answer.tokens == tokens.tokens
    pieces = [token.raw_bytes or token.text.encode() for token in answer.tokens]
    assert b"".join(pieces).decode() == raw
    assert [token.text for token in answer.tokens if token.special] == [begin, "<|im_start|>", "<|im_end|>"]
    assert (await whole(service, TextCompletionRequest(operation="detokenize", prompt_ids=tokens.ids))).tokens == ()


async def test_scores_are_the_log_probabilities_of_the_same_answer(service: LlamaCpp) -> None:
    answer = await whole(service, asked(PROMPT, temperature=0, logprobs=3))
    scored = tuple(token.id for token in answer.tokens)
    prompt = await ids_of(service, TextCompletionRequest(operation="tokenize", prompt=PROMPT))
    score = await whole(service, scoring(prompt, scored, logprobs=3))
    assert [token.id for token in score.tokens] == list(scored)
    assert logprobs_of(score.tokens) == pytest.approx(logprobs_of(answer.tokens), abs=0.05)
    assert [token.top[0][0] for token in score.tokens] == list(scored), "a greedy answer takes the likeliest token"
    assert [(token.text, len(token.top), len(token.top_texts)) for token in score.tokens] == [
        (token.text, 3, 3) for token in answer.tokens
    ]
    assert (score.response, score.in_token, score.finish_reason) == ("", len(prompt) + len(scored), None)
    later = await whole(service, scoring((*prompt, *scored[:2]), scored[2:]))
    assert logprobs_of(later.tokens) == pytest.approx(logprobs_of(score.tokens)[2:], abs=0.05)


async def test_a_conversation_and_a_text_can_be_scored(service: LlamaCpp) -> None:
    turns = (Message("user", PROMPT),)
    (by_turns, by_prompt) = [
        await whole(service, TextCompletionRequest(operation="score", scored=(5, 6), **fields))
        for fields in ({"messages": turns}, {"prompt": PROMPT})
    ]
    assert by_turns.tokens == by_prompt.tokens
    assert len(by_turns.tokens) == 2


async def test_the_tokens_of_a_prompt_are_scored(service: LlamaCpp) -> None:
    prompt = await ids_of(service, TextCompletionRequest(operation="tokenize", raw=True, prompt=STORY * 3))
    assert len(prompt) > 20
    answer = await whole(service, scoring(prompt, (9, 8), prompt_logprobs=2, logprobs=1))
    assert [token.id for token in answer.prompt_tokens] == list(prompt)
    first, *others = answer.prompt_tokens
    assert (first.logprob, first.top) == (None, ())
    assert {len(token.top) for token in others} == {2}
    direct = await whole(service, scoring(prompt[:1], (*prompt[1:], 9, 8)))
    assert logprobs_of(direct.tokens) == pytest.approx(logprobs_of((*others, *answer.tokens)), abs=0.05)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_prompt_alone_is_scored_and_nothing_generated(service: LlamaCpp, count: int) -> None:
    before = service.engine.stats().generated_tokens
    answer = await whole(service, scoring((5, 6)[:count], (), prompt_logprobs=0))
    assert [token.id for token in answer.prompt_tokens] == [5, 6][:count]
    assert (answer.tokens, answer.in_token) == ((), count)
    assert service.engine.stats().generated_tokens == before


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("echo", [True, False])
async def test_an_answer_comes_after_the_tokens_of_its_prompt(service: LlamaCpp, streaming: bool, echo: bool) -> None:
    sampling = Sampling(temperature=0, max_tokens=5, prompt_logprobs=1, logprobs=1, ignore_eos=True)
    request = TextCompletionRequest(prompt=PROMPT, raw=True, echo=echo, streaming=streaming, sampling=sampling)
    records = [record async for record in service.on_request(request)]
    assert [number for number, record in enumerate(records) if record.prompt_tokens] == [0]
    (answer,) = TextCompletionResponse.join(records)
    assert "".join(token.text for token in answer.prompt_tokens if not token.special) == PROMPT
    told = "".join(token.text for token in answer.tokens)
    assert answer.response == (PROMPT + told if echo else told)
    assert (answer.in_token, answer.out_token) == (len(answer.prompt_tokens), 5)
    plain = TextCompletionRequest(
        prompt=PROMPT, raw=True, sampling=Sampling(temperature=0, max_tokens=5, ignore_eos=True)
    )
    assert await text_of(service, plain) == told


async def test_scores_beside_streams_and_in_small_steps_are_the_same(
    service: LlamaCpp, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tuple(service.engine.model.tokenize(STORY * 4, special=False))
    requests = [scoring(ids[:number], ids[number:], logprobs=0) for number in (1, 7, 20)]
    story = asked(STORY, seed=3, max_tokens=30)
    alone = [logprobs_of((await whole(service, request)).tokens) for request in requests]
    text = await text_of(service, story)
    monkeypatch.setattr(context, "MAX_SCORED_BYTES", 3 * 4 * service.engine.model.vocabulary)
    async with opened(engines=1) as narrow:
        told, *answers = await asyncio.gather(whole(narrow, story), *[whole(narrow, request) for request in requests])
        assert narrow.engine.stats().steps >= len(ids) // 3 - 1, "three rows beside one of each stream"
    assert told.response == text
    for answer, expected in zip(answers, alone, strict=True):
        assert logprobs_of(answer.tokens) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (scoring((5,), (2048,)), BadRequest, "scored: this model's token ids are 0 to 2047"),
        (scoring((5,), (6,), logprobs=21), BadRequest, "logprobs must be from 0 to 20"),
        (scoring((5,), (6,), prompt_logprobs=21), BadRequest, "prompt_logprobs must be from 0 to 20"),
        (scoring((5,), (6,) * 5000), ContextLengthExceeded, "5000 tokens"),
        (TextCompletionRequest(operation="detokenize", prompt_ids=(2048,)), BadRequest, "^the tokens: this"),
        (TextCompletionRequest(prompt_ids=(2048,)), BadRequest, "^the prompt: this model's token ids are 0 to 2047"),
        (TextCompletionRequest(operation="embed", id_lists=((1,), (2048,))), BadRequest, "^each text: this model's"),
        (TextCompletionRequest(operation="detokenize", prompt_ids=(1,) * 200_001), TooLarge, "200000"),
    ],
)
async def test_what_cannot_be_told_is_refused(
    service: LlamaCpp, request_: TextCompletionRequest, kind: type[TgError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        await whole(service, request_)


async def test_the_list_of_models_tells_what_doors_need(service: LlamaCpp) -> None:
    (model,) = (await whole(service, TextCompletionRequest(operation="list-models"))).models
    assert (model.context_length, model.vocabulary, model.dimensions) == (4096, 2048, 192)
    assert set(model.end_ids) == service.engine.model.end_tokens
