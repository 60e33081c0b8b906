"""JSON that was asked for, and what comes in place of it."""

import pytest

from tg_base.llm import LlmChunk
from tg_base.llm.answer_form import AnswerForm
from tg_base.runtime import WorkerPool
from tg_schema import TextCompletionRequest, TgError
from tg_schema.errors import BadRequest, ProtocolError, SchemaViolation

PERSON = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
ASKED = TextCompletionRequest(prompt="p", schema=PERSON)
CHECKERS = WorkerPool()
"""Of which no process is started."""
JSON = TextCompletionRequest(prompt="p", response_format="json")


async def checked(request: TextCompletionRequest, text: str) -> str:
    form = await AnswerForm.of(request, CHECKERS)
    assert form is not None
    (answer,) = await form.check_answer((LlmChunk(text),), streamed=False)
    return answer.text


async def test_any_text_will_do_where_nothing_was_asked_for() -> None:
    assert await AnswerForm.of(TextCompletionRequest(prompt="p"), CHECKERS) is None
    assert await AnswerForm.of(TextCompletionRequest(prompt="p", response_format="text"), CHECKERS) is None


@pytest.mark.parametrize("text", ['{"name": "Ann"}', ' \n{"name":"Ann","n":1}\n'])
async def test_what_fits_passes_unchanged(text: str) -> None:
    assert await checked(ASKED, text) == text


async def test_a_fence_is_taken_off() -> None:
    assert await checked(ASKED, 'Here:\n```json\n{"name": "Ann"}\n```\nDone.') == '{"name": "Ann"}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("Ann", "not valid JSON"),
        ('{"name": "Ann"} {}', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("9" * 5000, "not valid JSON"),
        ('{"nam": "Ann"}', 'rule "required"'),
        ('{"name": 1}', 'name breaks the rule "type"'),
        ('```\n{"name": 1}\n```', 'name breaks the rule "type"'),
        ("[]", 'rule "type"'),
    ],
)
async def test_what_does_not_fit_is_told(text: str, words: str) -> None:
    with pytest.raises(SchemaViolation, match=words):
        await checked(ASKED, text)


async def test_without_a_schema_any_object_will_do() -> None:
    assert await checked(JSON, '{"a": [1]}') == '{"a": [1]}'
    assert await checked(TextCompletionRequest(prompt="p", schema={"type": "array"}), "[1]") == "[1]"
    with pytest.raises(SchemaViolation, match="not valid JSON"):
        await checked(JSON, "one")


@pytest.mark.parametrize("text", ["[1]", "1", "null", '"{}"', "```json\n[{}]\n```"])
async def test_what_is_json_but_no_object_is_told(text: str) -> None:
    with pytest.raises(SchemaViolation, match="no JSON object"):
        await checked(JSON, text)


@pytest.mark.parametrize(
    "schema", [{"type": "blah"}, {"$ref": "https://elsewhere.invalid/a"}, {"const": "\ud800"}, {"required": 3}]
)
async def test_a_schema_that_is_none_is_a_bad_request(schema: dict[str, object]) -> None:
    with pytest.raises(BadRequest, match="schema"):
        await AnswerForm.of(TextCompletionRequest(prompt="p", schema=schema), CHECKERS)


def test_the_error_travels_as_itself() -> None:
    error = SchemaViolation("no")
    assert isinstance(error, ProtocolError)
    assert (error.type, error.status, error.retryable) == ("schema-violation", 502, True)
    assert type(TgError.of(error.record)) is SchemaViolation
