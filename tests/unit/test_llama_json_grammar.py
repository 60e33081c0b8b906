import json
from typing import Any

import pytest

from tg_flow.llama.json_grammar import json_grammar
from tg_schema.errors import BadRequest


def nested(levels: int) -> dict[str, Any]:
    """Lists whose two readings double at every level."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"anyOf": [{"type": "array", "items": schema}, {"type": "array", "items": schema, "minItems": 1}]}
    return schema


def hidden(levels: int) -> dict[str, Any]:
    """The same through references, the innermost named first."""
    defs: dict[str, Any] = {f"d{levels}": {"type": "integer"}}
    for level in range(levels):
        items = {"$ref": f"#/$defs/d{level + 1}"}
        defs[f"d{level}"] = {
            "anyOf": [{"type": "array", "items": items}, {"type": "array", "items": items, "minItems": 1}]
        }
    names = {f"p{level:02}": {"$ref": f"#/$defs/d{level}"} for level in reversed(range(levels))}
    return {"$defs": defs, "type": "object", "properties": names}


LISTS_OF_ITSELF = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": n} for n in (1, 2)]}
CHAIN = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 2}"}]} for n in range(40)}


def test_a_grammar_is_rules_from_root() -> None:
    grammar = json_grammar({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    rules = dict(line.split(" ::= ") for line in grammar.splitlines())
    assert rules[rules["root"]].startswith('"{" ')
    assert any(body.startswith(r'"\"a\"" ":" ws integer') for body in rules.values())


def test_what_is_said_twice_is_read_once() -> None:
    grammar = json_grammar({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "null"}}})
    assert grammar.count("| d") == 0


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string", "pattern": "^(a+)+$"}, "pattern"),
        ({"type": "integer", "minimum": 3}, "minimum"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"not": {"type": "null"}}, '"not"'),
        ({"type": "object", "properties": {"a": {"if": {}}}}, '"if"'),
        ({"type": "foo"}, "type"),
        ({"type": []}, "type"),
        ({"type": 3}, "type"),
        ({"type": "array", "items": False}, "sub-schema"),
        ({"properties": [1]}, "properties"),
        ({"type": "object", "required": [{}]}, "names"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "required"),
        ({"enum": []}, "enum"),
        ({"enum": "abc"}, "enum"),
        ({"type": "string", "enum": [1]}, "type"),
        ({"anyOf": []}, "anyOf"),
        ({"anyOf": [{"type": "null"}], "type": "string"}, "beside it"),
        ({"allOf": [{"type": "null"}, {"type": "string"}]}, "allOf"),
        ({"$ref": 3}, "ref"),
        ({"$ref": "https://example.org/schema"}, "into the schema itself"),
        ({"$ref": "#/$defs/a"}, "points to nothing"),
        ({"$ref": "#/$defs/a", "type": "null", "$defs": {"a": {}}}, "beside it"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, "itself"),
        ({"type": "array", "minItems": -1}, "minItems"),
        ({"type": "array", "minItems": True}, "minItems"),
        ({"type": "array", "maxItems": 10**9}, "maxItems"),
        ({"type": "string", "minLength": 5, "maxLength": 4}, "maxLength"),
        ({"type": "array", "prefixItems": [], "minItems": 1}, "prefixItems"),
        ({"type": "array", "prefixItems": [{}], "minItems": 2}, "prefixItems"),
        ({"type": "object", "properties": {f"p{n}": {"maxLength": 1000} for n in range(21)}}, "20000"),
        ({"enum": ["x" * 1000 + str(n) for n in range(300)]}, "too long"),
        ({"type": "object", "properties": {f"p{n}": {"type": "null"} for n in range(1001)}}, "1000 sub-schemas"),
        (json.loads('{"items":' * 500 + "{}" + "}" * 500), "within each other"),
        (nested(7), "begin alike"),
        (hidden(7), "begin alike"),
        ({"$defs": {"n": LISTS_OF_ITSELF}, "$ref": "#/$defs/n"}, "begin alike"),
        ({"$defs": CHAIN, "$ref": "#/$defs/d0"}, "within each other"),
    ],
)
@pytest.mark.timeout(10)
def test_what_a_grammar_cannot_hold_is_refused_in_words(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        json_grammar(schema)


@pytest.mark.parametrize("schema", [nested(6), hidden(6), {"anyOf": [{"$ref": "#"}, {"type": "null"}]}])
def test_what_stays_within_the_bounds_is_allowed(schema: dict[str, Any]) -> None:
    assert json_grammar(schema)
