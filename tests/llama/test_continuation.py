"""The rest of an answer, from any place of its text: what the model would have written, or a refusal."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, nullcontext, suppress
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.llama.demo_llm import STORY, asked, opened
from tests.observed_calls import observe_calls
from tg_llama.begun_answer import MAX_CUT_CHARACTERS, cut_begun
from tg_llama.demo import DemoModel
from tg_llama.demo.demo_model import BytePairs
from tg_llama.demo_provider import Demo, DemoOptions
from tg_llama.provider import LlamaCpp
from tg_schema import Sampling, TextCompletionRequest, TextCompletionResponse, Tool
from tg_schema.errors import BadRequest

Service = Demo | LlamaCpp
MODEL = DemoModel()
CONTINUED: frozenset[Any] = frozenset({"continuation"})


@pytest.fixture(params=["demo", pytest.param("llama-cpp", marks=pytest.mark.model)])
async def service(request: pytest.FixtureRequest) -> AsyncIterator[Service]:
    async with AsyncExitStack() as stack:
        if request.param == "demo":
            opened_here: Service = await Demo.open("tinydemo", DemoOptions(tries=1, extra_features=CONTINUED))
            stack.push_async_callback(opened_here.aclose)
        else:
            opened_here = await stack.enter_async_context(opened(extra_features=CONTINUED))
        yield opened_here


async def records_of(service: Service, request: TextCompletionRequest) -> list[TextCompletionResponse]:
    return [record async for record in service.on_request(request)]


def text_of(records: list[TextCompletionResponse]) -> str:
    return "".join([record.response or "" for record in records])


def rest_of(request: TextCompletionRequest, *begun: str) -> TextCompletionRequest:
    return msgspec.structs.replace(request, continuation=begun)


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ANNA = "Anna is 30 years old and lives in Paris."
REQUESTS = (
    asked("What is Apache Pulsar?", temperature=0),
    asked(STORY, temperature=0, stop=("school",)),
    asked(STORY, temperature=0, stop=("school",), keep_stop=True),
    asked("Count to 10.", temperature=0, max_tokens=20),
    asked(STORY, temperature=0, presence_penalty=1, frequency_penalty=0.5, max_tokens=40),
    asked(STORY, temperature=0, repetition_penalty=1.3, max_tokens=40),
    asked("Count to 10.", temperature=0, min_tokens=5, max_tokens=20),
    msgspec.structs.replace(asked(ANNA, temperature=0), schema=PERSON),
    msgspec.structs.replace(asked("What is the capital of France?", temperature=0), regex="[A-Z][a-z ]{5,40}\\."),
    msgspec.structs.replace(asked("The capital of", temperature=0, max_tokens=40), raw=True),
)


@pytest.mark.parametrize("request_", REQUESTS)
async def test_the_rest_is_what_follows(service: Service, request_: TextCompletionRequest) -> None:
    if request_.features - service.features:
        with pytest.raises(BadRequest):
            await records_of(service, request_)
        return
    sampling = msgspec.structs.replace(request_.sampling or Sampling(), logprobs=0)
    logged = msgspec.structs.replace(request_, sampling=sampling)
    tokens = [token for record in await records_of(service, logged) for token in record.tokens]
    whole = await records_of(service, request_)
    text, last = text_of(whole), whole[-1]
    starts = [tokens[:count] for count in range(1, len(tokens))]
    written = {"".join([token.text for token in start]): [token.id for token in start] for start in starts}
    # A text may be written in unusual tokens, above all under a penalty: "S", "im", "a" instead of "S", "ima".
    tokenize = partial(service.engine.model.tokenize, special=False)
    usual = [begun for begun, ids in written.items() if tokenize(begun) == ids]
    # Of a stop string nothing is shown.
    cuts = [begun for begun in usual if text.startswith(begun) and begun != text]
    refused = 0
    for begun in cuts:
        try:
            *rest, end = await records_of(service, rest_of(request_, begun))
        except BadRequest:
            # " a" may be what was shown of " as", and "s" held back as the beginning of "school".
            assert sampling.stop
            refused += 1
            continue
        assert begun + text_of(rest) + (end.response or "") == text
        assert (end.finish_reason, end.stopped_by) == (last.finish_reason, last.stopped_by)
        assert end.continued_at == (len(begun),)
    assert refused < len(cuts) / 2


async def test_a_limit_that_is_used_up_is_the_end(service: Service) -> None:
    request = asked("Count to 10.", temperature=0, max_tokens=20)
    text = text_of(await records_of(service, request))
    *rest, last = await records_of(service, rest_of(request, text[:10], text[10:]))
    assert (text_of(rest), last.response or "", last.finish_reason) == ("", "", "length")
    assert last.continued_at == (10, len(text))


async def test_the_limit_of_the_context_too(service: Service) -> None:
    last = (await records_of(service, rest_of(asked(STORY), "la " * service.engine.context_length)))[-1]
    assert (last.response or "", last.finish_reason) == ("", "length")


@pytest.mark.parametrize(
    ("request_", "begun"),
    [
        # " is" may have been the token, of which "s" was held back.
        (asked("Tell me of token", temperature=0, stop=("s a",)), "A token i"),
        (asked(STORY), "half a character: \ufffd"),
        (msgspec.structs.replace(asked(ANNA), schema=PERSON), '{"name": 1'),
        (asked(STORY, logprobs=0), "Once"),
        (asked(STORY, n=2), "Once"),
        (asked(STORY, streaming=False), "Once"),
    ],
)
async def test_what_is_not_exact_is_refused(service: Service, request_: TextCompletionRequest, begun: str) -> None:
    with pytest.raises(BadRequest, match=r"continu|can't do this"):
        await records_of(service, rest_of(request_, begun))


async def test_a_call_may_follow_the_text(service: Service) -> None:
    tool = Tool("weather", "The weather in a city.", {"type": "object", "properties": {"city": {"type": "string"}}})
    request = msgspec.structs.replace(asked("What is a topic?", temperature=0), tools=(tool,))
    whole = text_of(await records_of(service, request))
    begun = whole[: whole.index(" ", 5)]
    assert begun + text_of(await records_of(service, rest_of(request, begun))) == whole


WORDS = ("a ", "to", "pic", " is", "  ", "s", ".", "\n", " A", "é", "日本", "1", "23", "'s")


@given(
    words=st.lists(st.sampled_from(WORDS), max_size=60),
    stops=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map("".join), min_size=1, max_size=3),
)
def test_the_end_of_a_text_is_enough_to_know_what_a_stop_string_changes(words: list[str], stops: list[str]) -> None:
    text = "".join(words)
    ids = MODEL.tokenize(text, special=False)
    held = [stop[:end] for stop in stops for end in range(1, len(stop) + 1)]
    exact = all(MODEL.tokenize(text + more, special=False)[: len(ids)] == ids for more in held)
    request = rest_of(asked(STORY, stop=tuple(stops)), text)
    with nullcontext() if exact else pytest.raises(BadRequest):
        assert cut_begun(MODEL, request, 1000) == tuple(ids)


@pytest.mark.parametrize("text", ["a topic is a stream. " * 400 + "a topic", "topic" * 1600])
@pytest.mark.parametrize("stops", [1, 2, 64])
def test_stop_strings_cost_little(text: str, stops: int) -> None:
    cut: list[int] = []
    request = rest_of(asked(STORY, stop=tuple(f"{number}{'z' * 250}" for number in range(stops))), text)
    with observe_calls(BytePairs.tokenize, lambda named: cut.append(len(named["text"]))), suppress(BadRequest):
        cut_begun(MODEL, request, len(text))
    assert sum(cut) < 4 * len(text) + MAX_CUT_CHARACTERS


def test_what_fits_no_context_is_not_cut() -> None:
    cut: list[int] = []
    with observe_calls(BytePairs.tokenize, lambda named: cut.append(len(named["text"]))), pytest.raises(BadRequest):
        cut_begun(MODEL, rest_of(asked(STORY), "topic" * 10_000), 100)
    assert cut == []
