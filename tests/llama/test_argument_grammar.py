"""Forced calls whose arguments are no JSON object: which texts their grammars allow."""

from typing import Any

import pytest

from tg_llama.grammar.token_grammars import TokenGrammars
from tg_llama.tools.tool_format import TOOL_FORMATS
from tg_llama.tools.tool_grammar import tool_grammar
from tg_schema import Tool
from tg_schema.errors import BadRequest

GRAMMARS = TokenGrammars([*(bytes([number]) for number in range(256)), b""], {256})


def grammar_of(form: str, parameters: dict[str, Any]) -> str:
    formats = {each.name: each for each in TOOL_FORMATS}
    return tool_grammar(formats[form], (Tool("t", "", parameters),), several=False)


VARIED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "word": {"type": "string", "enum": ["one", "two"]},
        "text": {"type": "string", "maxLength": 5},
        "flag": {"type": "boolean"},
        "none": {"type": "null"},
        "list": {"type": "array", "items": {"$ref": "#/$defs/number"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["text"],
    "$defs": {"number": {"type": "integer"}},
}


def tagged(*parameters: tuple[str, str]) -> str:
    written = "".join([f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters])
    return f"<tool_call>\n<function=t>\n{written}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("form", "text", "fits"),
    [
        ("python", '[t(text="abc")]', True),
        ("python", '[t(word="one", text="a\\"c", flag=True, none=None, list=[1, 2])]', True),
        ("python", '[t(text="abc", flag=true)]', False),
        ("python", '[t(word="one")]', False),
        ("python", '[t(text="abcdef")]', False),
        ("python", '[t(word="three", text="")]', False),
        ("python", '[t(text="", list=[1], flag=True)]', False),
        ("python", '[t(text="",)]', False),
        ("qwen3 coder", tagged(("text", "a</p")), True),
        (
            "qwen3 coder",
            tagged(("word", "two"), ("text", ""), ("flag", "true"), ("none", "null"), ("list", "[1]")),
            True,
        ),
        ("qwen3 coder", tagged(("word", "two")), False),
        ("qwen3 coder", tagged(("word", "six"), ("text", "")), False),
        ("qwen3 coder", tagged(("text", "abcdef")), False),
        ("qwen3 coder", tagged(("text", ""), ("list", '["1"]')), False),
    ],
)
def test_a_forced_call_that_is_no_json_keeps_to_its_schema(form: str, text: str, fits: bool) -> None:
    matcher = GRAMMARS.start(grammar_of(form, VARIED))
    consumed = matcher.try_consume_tokens(list(text.encode()))
    assert (consumed == len(text.encode()) and matcher.is_accepting()) is fits


@pytest.mark.parametrize("form", ["python", "qwen3 coder"])
@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"anyOf": [{"type": "object"}]}, "one by one"),
        ({"type": "object", "properties": {"a b": {"type": "string"}}}, "of this name: 'a b'"),
    ],
)
def test_arguments_that_cannot_be_written_one_by_one_are_refused(
    form: str, parameters: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadRequest, match=said):
        grammar_of(form, parameters)
