"""What one request gets from the real engine and the demo model."""

import math
from collections.abc import Iterator

import pytest

from tests.llama.demo_llm import STORY, asked, demo_service, records_of, text_of, whole
from tg_llama.provider import LlamaCpp
from tg_schema import TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import ContextLengthExceeded

pytestmark = pytest.mark.model

PULSAR = "Apache Pulsar is a messaging system that stores streams of messages in topics."


@pytest.fixture(scope="module")
def service() -> Iterator[LlamaCpp]:
    with demo_service() as opened:
        yield opened


async def test_streams_while_it_generates_and_ends_with_usage(service: LlamaCpp) -> None:
    records = await records_of(service, asked("What is Apache Pulsar?", temperature=0))
    text = "".join(record.response or "" for record in records)
    assert text.startswith(PULSAR)
    assert len(records) > 1  # as many as the tokens, unless the loop is late: what has come by then is one record
    assert [record.end_of_stream for record in records] == [False] * (len(records) - 1) + [True]
    assert all(record.in_token is None and record.finish_reason is None for record in records[:-1])
    last = records[-1]
    assert last.model == "tinydemo"
    assert last.finish_reason == "stop"
    model = service.engine.model
    assert last.out_token == len(model.tokenize(text, special=False))
    assert last.in_token == len(
        model.tokenize("<|im_start|>user\nWhat is Apache Pulsar?<|im_end|>\n<|im_start|>assistant\n", special=True)
    ) + len([model.begin])


async def test_the_whole_answer_is_the_joined_stream(service: LlamaCpp) -> None:
    streamed = await whole(service, asked(STORY, seed=5))
    (at_once,) = await records_of(service, asked(STORY, seed=5, streaming=False))
    assert at_once == TextCompletionResponse(
        response=streamed.response,
        in_token=streamed.in_token,
        # All but the last token of the prompt, which chooses the first of the answer.
        cached_token=(streamed.in_token or 0) - 1,
        out_token=streamed.out_token,
        model="tinydemo",
        end_of_stream=True,
        finish_reason="stop",
        seed=5,
    )


async def test_without_a_seed_every_answer_is_another(service: LlamaCpp) -> None:
    assert len({await text_of(service, asked(STORY)) for _ in range(5)}) > 1


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, 2**63 - 1])
async def test_any_whole_number_is_a_seed(service: LlamaCpp, seed: int) -> None:
    first = await text_of(service, asked(STORY, seed=seed))
    assert await text_of(service, asked(STORY, seed=seed)) == first


async def test_the_context_ends_with_length(service: LlamaCpp) -> None:
    limit = service.engine.context_length
    record = await whole(service, asked("word " * 2_000, temperature=0, ignore_eos=True))
    assert record.finish_reason == "length"
    assert record.in_token is not None
    assert record.out_token is not None
    assert record.in_token + record.out_token == limit


async def test_a_stop_string_that_does_not_come_changes_nothing(service: LlamaCpp) -> None:
    record = await whole(service, asked("Count to 10.", temperature=0, stop=("10, 11", "10,")))
    assert record.response == "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"


async def test_logprobs_are_those_of_the_model(service: LlamaCpp) -> None:
    record = await whole(service, asked("Count to 5.", temperature=0, logprobs=3))
    assert "".join(token.text for token in record.tokens) == record.response
    assert len(record.tokens) == record.out_token
    for token in record.tokens:
        assert token.text.encode() == service.engine.model.pieces[token.id]
        assert len(token.top) == 3
        assert token.top[0] == (token.id, token.logprob), "greedy takes the likeliest"
        assert [value for _, value in token.top] == sorted((value for _, value in token.top), reverse=True)
        assert type(token.logprob) is float
        assert all(type(number) is int and type(value) is float for number, value in token.top)
        assert sum(math.exp(value) for _, value in token.top) <= 1 + 1e-9


async def test_all_probabilities_add_up_to_one(service: LlamaCpp) -> None:
    record = await whole(service, asked(STORY, temperature=0, logprobs=20, max_tokens=1))
    assert sum(math.exp(value) for _, value in record.tokens[0].top) == pytest.approx(1, abs=0.05)


async def test_logprobs_zero_gives_the_chosen_tokens_alone(service: LlamaCpp) -> None:
    record = await whole(service, asked("Count to 5.", temperature=0, logprobs=0))
    assert record.tokens
    assert all(token.top == () and token.logprob is not None and token.logprob <= 0 for token in record.tokens)


async def test_token_data_stops_where_the_text_stops(service: LlamaCpp) -> None:
    record = await whole(service, asked("Count to 10.", temperature=0, logprobs=0, stop=(", 6",)))
    assert "".join(token.text for token in record.tokens).startswith(record.response or "?")
    assert len(record.tokens) <= (record.out_token or 0)


@pytest.mark.parametrize("prompt", ["story " * 5_000, "story " * 20_000, "a" * 1_000_000], ids=len)
async def test_a_prompt_beyond_the_context_is_told_the_limit(service: LlamaCpp, prompt: str) -> None:
    with pytest.raises(ContextLengthExceeded, match="is 4096 tokens"):
        await records_of(service, TextCompletionRequest(prompt=prompt))
    assert (await text_of(service, asked("Count to 5.", temperature=0))) == "1, 2, 3, 4, 5"


async def test_any_unicode_can_be_asked(service: LlamaCpp) -> None:
    record = await whole(service, asked("\ud800 \0 \U0001f600 ﷺ", system="é", max_tokens=5))
    assert record.out_token
