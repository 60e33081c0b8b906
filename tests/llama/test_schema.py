"""Answers that must satisfy a JSON schema: the real engine, made to choose tokens nearly at random."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from tests.llama.demo_llm import asked, demo_service, opened, records_of, text_of, whole
from tg_llama.core.sampler_settings import SamplerSettings
from tg_llama.grammar.json_grammar import json_grammar
from tg_llama.native.sampler import GrammarSampler
from tg_llama.provider import LlamaCpp
from tg_schema import Sampling, TextCompletionRequest
from tg_schema.errors import BadRequest

pytestmark = pytest.mark.model

PERSON = {
    "type": "object",
    "title": "Person",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["v", "next"],
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "person": PERSON,
    "optional": {
        "type": "object",
        "properties": {"a": {"type": "null"}, "b": {"type": "boolean"}, "c": {"const": [1, None]}},
        "required": ["b"],
        "additionalProperties": False,
    },
    "all optional": {"properties": {"a": {"enum": [1]}, "b": {"enum": [2]}, "c": {"enum": [3]}}},
    "odd names": {
        "type": "object",
        "properties": {'q"\\\n\t/é\U0001f600': {"enum": ['x"y', "b\\c", "é\n", "\U0001f600", 1.5, False]}},
        "required": ['q"\\\n\t/é\U0001f600'],
    },
    "required but not described": {"type": "object", "required": ["id"]},
    "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 4},
    "at least": {"type": "array", "items": {"type": "boolean"}, "minItems": 3},
    "at most": {"type": "array", "items": {"const": 7}, "maxItems": 2},
    "empty": {"type": "array", "maxItems": 0},
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "string", "minLength": 2, "maxLength": 3}],
    },
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "nothing": {"type": "object", "additionalProperties": False},
    "types": {"type": ["string", "null"], "maxLength": 3},
    "constant": {"const": {"a": [1, 2.5, None, True]}},
    "formats": {
        "type": "object",
        "properties": {name: {"type": "string", "format": name} for name in ("date", "time", "date-time", "uuid")},
        "required": ["date", "time", "date-time", "uuid"],
    },
    "recursive": {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
    "root reference": {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False},
    "union": {"oneOf": [{"type": "array", "items": PERSON, "maxItems": 1}, PERSON, {"type": "integer"}]},
    "anything": {},
    "enum of one type": {"type": "integer", "enum": ["a", 1, True, 2.5]},
    "bounds": {
        "type": "array",
        "items": {"type": "integer", "minimum": 3, "exclusiveMaximum": 120, "multipleOf": 5},
        "maxItems": 3,
    },
    "bounded numbers": {"type": "array", "items": {"type": "number", "minimum": -2.5}, "maxItems": 3},
    "pattern": {"type": "string", "pattern": "^[a-z]{1,5}-[0-9]{1,3}$"},
    "all of several": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"a": {"maximum": 9}, "b": {"type": "boolean"}}, "required": ["b"]},
        ],
        "maxProperties": 2,
    },
    "beside a reference": {
        "$defs": {"text": {"type": "string", "minLength": 1}},
        "$ref": "#/$defs/text",
        "maxLength": 4,
    },
    "names by pattern": {
        "type": "object",
        "patternProperties": {"^x[0-9]$": {"type": "null"}},
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def service() -> Iterator[LlamaCpp]:
    with demo_service() as service:
        yield service


def held_to(schema: dict[str, Any], seed: int, **sampling: Any) -> TextCompletionRequest:
    wild = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "max_tokens": 120, "seed": seed} | sampling
    return TextCompletionRequest(prompt="Write JSON for Anna, age 5.", schema=schema, sampling=Sampling(**wild))


@pytest.mark.parametrize("name", SCHEMAS)
async def test_every_answer_satisfies_its_schema(service: LlamaCpp, name: str) -> None:
    checker = jsonschema_rs.Draft202012Validator(SCHEMAS[name], validate_formats=True)
    finished = 0
    for seed in range(16):
        # Without a penalty the model nests what may nest for ever, until its tokens are used up.
        answer = await whole(service, held_to(SCHEMAS[name], seed, temperature=seed % 4, frequency_penalty=1))
        if answer.finish_reason == "stop":
            checker.validate(json.loads(answer.response or ""))
            finished += 1
    assert finished


async def test_a_schema_leads_the_model_and_does_not_replace_it(service: LlamaCpp) -> None:
    answer = await text_of(service, held_to(PERSON, seed=1, temperature=0))
    person = json.loads(answer)
    assert person["name"].startswith("Anna")


async def test_json_without_a_schema_is_an_object(service: LlamaCpp) -> None:
    for seed in range(5):
        request = TextCompletionRequest(
            prompt="Who are you?", response_format="json", sampling=Sampling(seed=seed, max_tokens=200)
        )
        answer = await whole(service, request)
        if answer.finish_reason == "stop":
            assert isinstance(json.loads(answer.response or ""), dict)
        assert (answer.response or "")[0] == "{"


async def test_a_schema_streams_like_any_answer(service: LlamaCpp) -> None:
    request = TextCompletionRequest(
        prompt="Write JSON for Anna, age 5.", streaming=True, schema=PERSON, sampling=Sampling(seed=1)
    )
    records = await records_of(service, request)
    assert records[0].response
    assert not records[0].last
    json.loads("".join(record.response or "" for record in records))


async def test_the_same_seed_gives_the_same_json(service: LlamaCpp) -> None:
    first = await text_of(service, held_to(SCHEMAS["anything"], seed=9))
    assert await text_of(service, held_to(SCHEMAS["anything"], seed=9)) == first


async def test_a_bad_schema_ends_that_request_alone(service: LlamaCpp) -> None:
    with pytest.raises(BadRequest, match="uniqueItems"):
        await text_of(service, held_to({"type": "array", "uniqueItems": True}, seed=1))
    assert await text_of(service, asked("Count to 3.", temperature=0)) == "1, 2, 3"


async def test_a_schema_that_is_no_unicode_is_refused(service: LlamaCpp) -> None:
    with pytest.raises(BadRequest, match="Unicode"):
        await text_of(service, held_to({"const": "\ud800"}, seed=1))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"p{n}": {"type": "string", "maxLength": 1000} for n in range(20)}},
        {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(990)}},
        {"enum": ["x" * 100 + str(n) for n in range(1000)]},
        json.loads('{"items":' * 31 + '{"type":"integer"}' + "}" * 31),
    ],
    ids=["lengths", "properties", "values", "depth"],
)
async def test_the_largest_schemas_do_not_hold_up_the_engine(schema: dict[str, Any]) -> None:
    # A large one is compiled by a process of the service, which belongs to one loop.
    async with opened() as service:
        answer = await whole(service, held_to(schema, seed=1, max_tokens=20))
    assert answer.out_token


def test_a_grammar_that_cannot_be_read_is_refused(service: LlamaCpp, capfd: pytest.CaptureFixture[str]) -> None:
    settings = SamplerSettings(temperature=0, top_k=0, top_p=1, seed=0)
    with pytest.raises(BadRequest, match="grammar"):
        GrammarSampler(service.engine.model, settings, 10, "start: missing")
    assert capfd.readouterr() == ("", "")


def test_every_grammar_can_be_read(service: LlamaCpp) -> None:
    settings = SamplerSettings(temperature=0, top_k=0, top_p=1, seed=0)
    for schema in SCHEMAS.values():
        GrammarSampler(service.engine.model, settings, 10, json_grammar(schema)).close()
