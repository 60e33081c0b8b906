"""Answers of the demo model that match a regular expression, and expressions that no grammar can keep to."""

import asyncio
import re
from collections.abc import Iterator

import pytest

from tests.llama.demo_llm import STORY, demo_service, whole
from tg_llama.grammar.regex_grammar import MAX_REGEX_CHARACTERS, regex_grammar
from tg_llama.provider import LlamaCpp
from tg_schema import Sampling, TextCompletionRequest
from tg_schema.errors import BadRequest

pytestmark = pytest.mark.model

# Bounded: a small model at a high temperature likes to repeat itself.
EXPRESSIONS = (
    r"\d{4}-\d\d-\d\d",
    r"^(yes|no|maybe)$",
    r"[A-Z][a-z]{1,9}( [A-Z][a-z]{2}){0,3}\.",
    r"(?:a|b){2,3}?é😀[-\]^\\]",
    r"(?P<name>[^a-z\n]{4})\Z",
    r".{3,20}!",
    r"[^\W]\W\s\S",
    r"((a|b)c?){1,5}d{1,3}e{0,2}f?\t\x01",
    r"(|x)(yes|)y{0}z",
    "((a?){3}|(bc*)*){2}[a&][-b]",
    "",
)
NUMBERS = r"[0-9, ]+(and [0-9]+)*"


@pytest.fixture(scope="module")
def service() -> Iterator[LlamaCpp]:
    with demo_service() as service:
        yield service


@pytest.mark.parametrize("expression", EXPRESSIONS)
async def test_the_whole_answer_matches(service: LlamaCpp, expression: str) -> None:
    hot = [Sampling(temperature=5, top_k=0, seed=seed, max_tokens=400) for seed in range(4)]
    requests = [TextCompletionRequest(prompt=STORY, regex=expression, sampling=sampling) for sampling in hot]
    for answer in await asyncio.gather(*[whole(service, request) for request in requests]):
        assert answer.finish_reason == "stop"
        assert re.fullmatch(expression, answer.response or "", re.ASCII), answer.response


async def test_a_repetition_without_end_ends_where_the_model_does(service: LlamaCpp) -> None:
    request = TextCompletionRequest(prompt="Count to 10.", regex=NUMBERS, sampling=Sampling(temperature=0))
    assert (await whole(service, request)).response == "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("(", "no regular expression"),
        ("(" * 900 + ")" * 900, "too deep"),
        ("a" * (MAX_REGEX_CHARACTERS + 1), f"may have {MAX_REGEX_CHARACTERS}"),
        (r"(a)\1", "back references"),
        (r"(?=a)b", "only characters"),
        (r"(?<!a)b", "only characters"),
        (r"\bword", "only characters"),
        ("a^b", "only characters"),
        ("(a|^b)c", "only characters"),
        ("(?i)a", "flags"),
        ("(?i:a)", "flags"),
        ("(?>a)", "only characters"),
        ("a++", "only characters"),
        (r"[\D5]", "beside others"),
        ("a{5000}", "1000 characters"),
        ("(a{50}){50}", "1000 characters"),
        ("a{99999999999999999999}", "no regular expression"),
        ("\ud800", "not Unicode"),
    ],
)
def test_what_no_grammar_can_keep_to_is_told(expression: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        regex_grammar(expression)


async def test_a_refused_expression_reaches_no_model(service: LlamaCpp) -> None:
    before = service.engine.stats()
    with pytest.raises(BadRequest, match="only characters"):
        await whole(service, TextCompletionRequest(prompt=STORY, regex=r"(a)\1"))
    assert service.engine.stats() == before
