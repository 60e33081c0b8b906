"""Where the demo model's answers end, and which tokens they are made of, by what a request says."""

import asyncio
import math
import struct
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.llama.demo_llm import STORY, asked, demo_service, records_of, text_of, whole
from tg_llama.core.interface import CONTROL_TOKEN
from tg_llama.grammar.regex_grammar import MAX_CHOICES
from tg_llama.provider import LlamaCpp
from tg_schema import Message, Sampling, TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import BadRequest, ContextLengthExceeded, TooLarge

pytestmark = pytest.mark.model

COUNT = "Count to 10."
TO_TEN = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"


@pytest.fixture(scope="module")
def service() -> Iterator[LlamaCpp]:
    with demo_service() as opened:
        yield opened


def ids_of(record: TextCompletionResponse) -> list[int]:
    return [token.id for token in record.tokens]


@pytest.mark.parametrize("narrow", [{"min_p": 1}, {"typical_p": 0}])
async def test_narrow_sampling_leaves_one_token(service: LlamaCpp, narrow: dict[str, Any]) -> None:
    wide: dict[str, Any] = {"temperature": 2, "max_tokens": 20}
    answers = {await text_of(service, asked(STORY, seed=seed, **wide, **narrow)) for seed in range(4)}
    assert len(answers) == 1
    assert len({await text_of(service, asked(STORY, seed=seed, **wide)) for seed in range(4)}) > 1


async def test_min_p_of_one_is_the_likeliest_token(service: LlamaCpp) -> None:
    assert await text_of(service, asked(STORY, min_p=1)) == await text_of(service, asked(STORY, temperature=0))


async def test_a_top_k_of_minus_one_is_all_tokens(service: LlamaCpp) -> None:
    """As vLLM's clients write it."""
    wide: dict[str, Any] = {"temperature": 2, "top_p": 1, "max_tokens": 20, "seed": 3}
    every, also, few = [await text_of(service, asked(STORY, **wide, top_k=top_k)) for top_k in (0, -1, 2)]
    assert every == also != few


async def test_the_repetition_penalty_counts_prompt_and_answer(service: LlamaCpp) -> None:
    ids = await service.tokenize(TextCompletionRequest(prompt=COUNT))
    record = await whole(service, asked(COUNT, temperature=0, logprobs=0, repetition_penalty=100, max_tokens=30))
    assert len(set(ids_of(record))) == len(ids_of(record))
    assert not set(ids_of(record)) & set(ids)
    assert await text_of(service, asked(COUNT, temperature=0, repetition_penalty=1)) == TO_TEN


async def test_a_bias_bars_or_forces_a_token(service: LlamaCpp) -> None:
    plain = await whole(service, asked(COUNT, temperature=0, logprobs=0))
    first, other = ids_of(plain)[0], ids_of(plain)[-1]
    barred = await whole(service, asked(COUNT, temperature=0, logprobs=0, logit_bias={first: -100}))
    assert first not in ids_of(barred)
    forced = await whole(service, asked(COUNT, logprobs=0, max_tokens=3, logit_bias={other: 100}))
    assert ids_of(forced) == [other] * 3


async def test_the_end_of_text_is_ignored(service: LlamaCpp) -> None:
    record = await whole(service, asked(COUNT, temperature=0, ignore_eos=True, max_tokens=60, logprobs=0))
    assert (record.finish_reason, record.out_token) == ("length", 60)
    assert (record.response or "").startswith(TO_TEN)
    assert not set(ids_of(record)) & service.engine.model.end_tokens


async def test_an_answer_has_its_least_tokens(service: LlamaCpp) -> None:
    plain = await whole(service, asked(COUNT, temperature=0, logprobs=3))
    least = (plain.out_token or 0) + 5
    record = await whole(service, asked(COUNT, temperature=0, logprobs=3, min_tokens=least))
    assert (record.out_token or 0) >= least
    assert record.tokens[: len(plain.tokens)] == plain.tokens, "the model's own probabilities stay"
    stopped = await whole(service, asked(COUNT, temperature=0, min_tokens=10, stop=(", ",)))
    assert stopped.finish_reason == "stop"
    assert (stopped.out_token or 0) >= 10
    early = await whole(service, asked(COUNT, temperature=0, min_tokens=1, stop=(", ",)))
    assert early.response == "1"


async def test_the_answer_says_what_stopped_it(service: LlamaCpp) -> None:
    assert (await whole(service, asked(COUNT, temperature=0))).stopped_by is None
    record = await whole(service, asked(COUNT, temperature=0, stop=("unseen", ", 6")))
    assert (record.response, record.stopped_by) == ("1, 2, 3, 4, 5", ", 6")
    kept = await whole(service, asked(COUNT, temperature=0, stop=(", 6",), keep_stop=True))
    assert (kept.response, kept.stopped_by, kept.finish_reason) == ("1, 2, 3, 4, 5, 6", ", 6", "stop")


async def test_a_token_stops_the_answer(service: LlamaCpp) -> None:
    plain = await whole(service, asked(COUNT, temperature=0, logprobs=0))
    at = next(number for number, token in enumerate(plain.tokens) if "6" in token.text)
    stop = plain.tokens[at].id
    record = await whole(service, asked(COUNT, temperature=0, logprobs=0, stop_ids=(stop,)))
    assert (ids_of(record), record.stopped_by, record.finish_reason) == (ids_of(plain)[:at], stop, "stop")
    kept = await whole(service, asked(COUNT, temperature=0, logprobs=0, stop_ids=(stop,), keep_stop=True))
    assert (ids_of(kept), kept.stopped_by) == (ids_of(plain)[: at + 1], stop)
    later = await whole(service, asked(COUNT, temperature=0, logprobs=0, stop_ids=(stop,), min_tokens=at + 1))
    assert (later.out_token or 0) > at


async def test_the_seed_that_was_used_gives_the_same_answer(service: LlamaCpp) -> None:
    record = await whole(service, asked(STORY))
    assert record.seed is not None
    assert await text_of(service, asked(STORY, seed=record.seed)) == record.response
    assert (await whole(service, asked(STORY, seed=5, max_tokens=1))).seed == 5
    assert (await whole(service, asked(STORY, temperature=0, max_tokens=1))).seed is None


async def test_several_answers_have_a_seed_each(service: LlamaCpp) -> None:
    records = await records_of(service, asked(STORY, n=3, seed=5, max_tokens=20, streaming=False))
    alone = [await text_of(service, asked(STORY, seed=seed, max_tokens=20)) for seed in (5, 6, 7)]
    assert [(record.index, record.seed, record.response) for record in records] == [
        (index, 5 + index, text) for index, text in enumerate(alone)
    ]
    assert records[-1].out_token == 60


async def test_the_best_answer_is_the_most_probable_one(service: LlamaCpp) -> None:
    each = [await whole(service, asked(STORY, seed=seed, max_tokens=20, logprobs=0)) for seed in range(4)]
    means = [sum(token.logprob or 0 for token in answer.tokens) / len(answer.tokens) for answer in each]
    (best,) = await records_of(service, asked(STORY, best_of=4, seed=0, max_tokens=20, streaming=False))
    assert (best.response, best.seed) == (each[means.index(max(means))].response, means.index(max(means)))


async def test_a_raw_prompt_has_no_template(service: LlamaCpp) -> None:
    templated = f"<|im_start|>user\n{COUNT}<|im_end|>\n<|im_start|>assistant\n"
    by_hand = TextCompletionRequest(prompt=templated, raw=True, sampling=Sampling(temperature=0))
    answer = await whole(service, by_hand)
    assert (answer.response, answer.in_token) == (TO_TEN, (await whole(service, asked(COUNT))).in_token)
    plain = TextCompletionRequest(prompt="Once upon", raw=True, sampling=Sampling(temperature=0, max_tokens=5))
    assert (await whole(service, plain)).in_token == 1 + len(service.engine.model.tokenize("Once upon", special=False))


async def test_a_prompt_of_token_ids(service: LlamaCpp) -> None:
    ids = await service.tokenize(TextCompletionRequest(prompt=COUNT))
    answer = await whole(service, TextCompletionRequest(prompt_ids=ids, sampling=Sampling(temperature=0)))
    assert (answer.response, answer.in_token) == (TO_TEN, len(ids))


async def test_echo_begins_with_the_prompt(service: LlamaCpp) -> None:
    greedy = Sampling(temperature=0)
    assert await text_of(service, TextCompletionRequest(prompt=COUNT, echo=True, sampling=greedy)) == COUNT + TO_TEN
    ids = tuple(service.engine.model.tokenize("Once upon a time", special=False))
    told = await text_of(service, TextCompletionRequest(prompt_ids=ids, echo=True, sampling=greedy))
    assert told.startswith("Once upon a time")


CHOICES = ("yes", "yes, sir", 'say "no"\n', "\\", "ja\u00df \U0001f600")


async def test_the_answer_is_one_of_the_choices(service: LlamaCpp) -> None:
    hot = [Sampling(temperature=50, top_k=0, top_p=1, seed=seed) for seed in range(12)]
    requests = [TextCompletionRequest(prompt=STORY, choice=CHOICES, sampling=sampling) for sampling in hot]
    answers = await asyncio.gather(*(whole(service, request) for request in requests))
    assert {answer.response for answer in answers} <= set(CHOICES)
    assert len({answer.response for answer in answers}) > 1
    for choice in CHOICES:
        only = TextCompletionRequest(prompt=STORY, choice=(choice,))
        assert (await whole(service, only)).response == choice


async def test_tokens_say_what_their_text_cannot(service: LlamaCpp) -> None:
    fox = TextCompletionRequest(prompt=STORY, choice=("\U0001f98a",), sampling=Sampling(logprobs=2))
    record = await whole(service, fox)
    assert record.response == "\U0001f98a"
    assert b"".join(token.raw_bytes or token.text.encode() for token in record.tokens) == "\U0001f98a".encode()
    assert any(token.raw_bytes is not None for token in record.tokens)
    for token in record.tokens:
        pieces = [service.engine.model.pieces[number] for number, _ in token.top]
        assert token.top_texts == tuple(piece.decode("utf-8", "replace") for piece in pieces)


async def test_control_tokens_are_special(service: LlamaCpp) -> None:
    model = service.engine.model
    others = set(range(model.vocabulary)) - model.end_tokens
    control = next(number for number in sorted(others) if model.attributes(number) & CONTROL_TOKEN)
    record = await whole(service, asked(STORY, max_tokens=2, logprobs=0, logit_bias={control: 100}))
    assert [(token.id, token.text, token.special) for token in record.tokens] == [
        (control, model.special_text(control), True)
    ] * 2
    plain = await whole(service, asked(COUNT, temperature=0, logprobs=0))
    assert not any(token.special for token in plain.tokens)


async def test_log_probabilities_are_those_after_the_bias(service: LlamaCpp) -> None:
    vocabulary = service.engine.model.vocabulary
    allowed = (300, 301, 302)
    mask = {number: -100.0 for number in range(vocabulary) if number not in allowed}
    record = await whole(service, asked(STORY, temperature=0, max_tokens=1, logprobs=4, logit_bias=mask))
    (token,) = record.tokens
    assert {number for number, _ in token.top[:3]} == set(allowed)
    assert sum(math.exp(logprob) for _, logprob in token.top[:3]) == pytest.approx(1)
    assert token.logprob == token.top[0][1] == max(logprob for _, logprob in token.top)
    assert token.top[3][1] < -50
    packed = ",".join(f"{number},-100" for number in mask)
    assert (await whole(service, asked(STORY, temperature=0, max_tokens=1, logprobs=4, packed_bias=packed))).tokens == (
        token,
    )
    floats = struct.pack(f"<{vocabulary}f", *(mask.get(number, 0) for number in range(vocabulary)))
    asking = asked(STORY, temperature=0, max_tokens=1, logprobs=4, packed_floats=b64encode(floats).decode())
    assert (await whole(service, asking)).tokens == (token,)
    with pytest.raises(BadRequest, match=f"the mask has {vocabulary - 1} numbers, and this model {vocabulary} tokens"):
        await whole(service, asked(STORY, packed_floats=b64encode(floats[4:]).decode()))
    with pytest.raises(BadRequest, match="token ids are 0 to"):
        await whole(service, asked(STORY, packed_bias=f"{vocabulary},1"))
    plain = await whole(service, asked(STORY, temperature=0, max_tokens=1, logprobs=4))
    assert not {number for number, _ in plain.tokens[0].top} & set(allowed)
    ids = (await whole(service, TextCompletionRequest(prompt=STORY, operation="tokenize"))).ids
    (scored,) = (
        await whole(
            service,
            TextCompletionRequest(
                prompt_ids=ids,
                scored=(token.id,),
                operation="score",
                sampling=Sampling(logit_bias=mask),
            ),
        )
    ).tokens
    assert scored.logprob == pytest.approx(token.logprob, abs=0.05)


@pytest.mark.parametrize("stop", [(), (", 3",), (", 4, 5",)])
async def test_the_token_that_ended_the_answer_is_told_if_asked(service: LlamaCpp, stop: tuple[str, ...]) -> None:
    asking: dict[str, Any] = {"temperature": 0, "logprobs": 1, "stop": stop}
    told = await whole(service, asked(COUNT, end_token=True, **asking))
    plain = await whole(service, asked(COUNT, **asking))
    same = (told.response, told.out_token, told.finish_reason, told.stopped_by)
    assert same == (plain.response, plain.out_token, plain.finish_reason, plain.stopped_by)
    if stop:
        assert told.tokens == plain.tokens, "a stop string ended it"
        return
    *others, end = told.tokens
    assert tuple(others) == plain.tokens
    assert (end.text, end.special, len(end.top)) == ("<|im_end|>", True, 1)
    assert end.id in service.engine.model.end_tokens
    assert end.logprob is not None
    limited = await whole(service, asked(COUNT, end_token=True, temperature=0, logprobs=0, max_tokens=2))
    assert (len(limited.tokens), limited.finish_reason) == (2, "length")


async def test_a_stop_id_that_ended_the_answer_is_told_too(service: LlamaCpp) -> None:
    plain = await whole(service, asked(COUNT, temperature=0, logprobs=0))
    third = plain.tokens[2].id
    told = await whole(service, asked(COUNT, temperature=0, logprobs=0, end_token=True, stop_ids=(third,)))
    kept = await whole(
        service, asked(COUNT, temperature=0, logprobs=0, end_token=True, stop_ids=(third,), keep_stop=True)
    )
    assert [token.id for token in told.tokens] == [token.id for token in kept.tokens]
    assert (told.tokens[-1].id, told.stopped_by, told.out_token) == (third, third, len(told.tokens) - 1)
    assert kept.out_token == len(kept.tokens)


async def test_tokens_are_counted_and_told_exactly(service: LlamaCpp) -> None:
    turns = (
        Message("system", "Be brief."),
        Message("user", "Hi!"),
        Message("assistant", "Hi."),
        Message("user", COUNT),
    )
    for request in (TextCompletionRequest(prompt=COUNT), TextCompletionRequest(messages=turns)):
        (count,) = await records_of(service, msgspec.structs.replace(request, operation="count-tokens"))
        assert count.in_token == (await whole(service, request)).in_token
        assert count.end_of_stream
    (ids,) = await records_of(service, TextCompletionRequest(texts=("Count", " to 5.<|im_end|>"), operation="tokenize"))
    assert b"".join(service.engine.model.pieces[number] for number in ids.ids) == b"Count to 5.<|im_end|>"
    long = TextCompletionRequest(prompt="word " * 5000, operation="count-tokens")
    (counted,) = await records_of(service, long)
    assert (counted.in_token or 0) > service.engine.context_length


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"sampling": Sampling(stop_ids=(10**6,))}, "the ids that stop"),
        ({"sampling": Sampling(logit_bias={10**6: 1.0})}, "logit_bias"),
        ({"sampling": Sampling(ignore_eos=True), "choice": ("a",)}, "ignore_eos"),
        ({"sampling": Sampling(min_tokens=2), "schema": {"type": "object"}}, "min_tokens"),
        ({"prompt": None, "prompt_ids": (10**6,)}, "the prompt"),
        ({"choice": tuple(map(str, range(MAX_CHOICES + 1)))}, "choice may have"),
        ({"choice": ("x" * 1001,)}, "choice may have"),
        ({"choice": ("\ud800",)}, "choice: a text is not Unicode"),
        ({"suffix": "b"}, "can't do this: suffix"),
        ({"sampling": Sampling(stop=tuple("abcdefghijklmnopq"))}, "stop"),
        ({"schema": {}, "echo": True}, "echo"),
    ],
)
async def test_what_the_model_cannot_is_named(service: LlamaCpp, fields: dict[str, Any], word: str) -> None:
    with pytest.raises(BadRequest, match=word):
        await records_of(service, TextCompletionRequest(**{"prompt": COUNT, **fields}))


async def test_too_much_to_count_is_refused(service: LlamaCpp) -> None:
    for request in (
        TextCompletionRequest(prompt="x" * 20_000_000, operation="count-tokens"),
        TextCompletionRequest(texts=("x" * 300_000,), operation="tokenize"),
    ):
        with pytest.raises((ContextLengthExceeded, TooLarge)):
            await records_of(service, request)
