import json
from typing import Any

import numpy as np
import pytest

from tg_llama.grammar.json_grammar import json_grammar
from tg_llama.grammar.token_grammars import TokenGrammars
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


BYTES = [bytes([number]) for number in range(256)]
END, CONTROL = 256, 257
GRAMMARS = TokenGrammars([*BYTES, b"", b""], {END})


def allows(schema: dict[str, Any], text: str) -> bool:
    matcher = GRAMMARS.start(json_grammar(schema))
    tokens = list(text.encode())
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


def next_tokens(grammar: str, text: str) -> set[int]:
    matcher = GRAMMARS.start(grammar)
    assert matcher.consume_tokens(list(text.encode()))
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ('{"a":1,"b":[1,"x"]}', True),
        ('{"a": 1, "b": {"c": null, "d": []}}', True),
        ('{"a": 1}', True),
        ('{ "a": 1}', False),
        ('{"a":  1}', False),
        ('{"a":\n1}', False),
        ('{"b": 1, "a": 1}', False),
        ('{"a": 1, "c": 1}', False),
        ('{"a": 01}', False),
        ('{"a": 1234567890123456}', False),
        ('{"a": 1} ', False),
    ],
)
def test_the_simplest_form_is_allowed(text: str, allowed: bool) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]}
    assert allows(schema, text) is allowed


@pytest.mark.parametrize(
    ("schema", "allowed", "forbidden"),
    [
        ({"type": "number"}, "-1.25", "1.0123456789"),
        ({"type": "integer", "minimum": 3, "maximum": 120}, "120", "121"),
        ({"type": ["integer", "null"]}, "7", "1234567890123456"),
        ({"type": "string", "pattern": "^(a+)+$"}, '"aaa"', '"ab"'),
        ({"anyOf": [{"type": "null"}, {"const": "x"}], "type": "string"}, '"x"', "null"),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, "3", "2"),
        ({"$ref": "#/$defs/a", "maxLength": 1, "$defs": {"a": {"type": "string"}}}, '"x"', '"xy"'),
        ({"allOf": [{"properties": {"a": {}}, "required": ["a"]}], "type": "object"}, '{"a": 1}', "{}"),
        ({"type": "array", "items": False}, "[]", "[1]"),
        ({"type": "string", "format": "date"}, '"2024-02-28"', '"2024-02-30"'),
        ({"type": "string", "format": "unknown"}, '"x"', "1"),
        ({"type": "array", "prefixItems": [{"const": 1}], "minItems": 2}, "[1, true]", "[1]"),
        ({"type": "array", "prefixItems": [{"const": 1}]}, "[1]", "[1, 2]"),
    ],
)
def test_keywords_are_enforced(schema: dict[str, Any], allowed: str, forbidden: str) -> None:
    assert allows(schema, allowed)
    assert not allows(schema, forbidden)


def test_an_answer_ends_where_its_grammar_does() -> None:
    grammar = json_grammar({"type": "integer"})
    assert END not in next_tokens(grammar, "")
    assert END not in next_tokens(grammar, "-")
    assert next_tokens(grammar, "1") == {END, *b"0123456789"}
    assert next_tokens(json_grammar({"const": 5}), "5") == {END}


def test_control_tokens_come_where_a_grammar_names_them() -> None:
    assert CONTROL not in next_tokens(json_grammar({"type": "string"}), '"a')
    assert next_tokens(f'start: "a" <[{CONTROL}]>', "a") == {CONTROL}


def test_a_character_is_continued_by_its_own_bytes_only() -> None:
    matcher = GRAMMARS.start(json_grammar({"type": "string"}))
    euro = "\u20ac".encode()
    for number, byte in enumerate(b'"' + euro):
        allowed = [token for token in range(256) if matcher.validate_tokens([token])]
        assert byte in allowed
        if number > 1:
            assert all(0x80 <= token < 0xC0 for token in allowed)
        matcher.consume_token(byte)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"not": {"type": "null"}}, '"not"'),
        ({"type": "object", "properties": {"a": {"if": {}}}}, '"if"'),
        ({"type": "foo"}, "type"),
        ({"type": []}, "type"),
        ({"type": 3}, "type"),
        ({"properties": [1]}, "properties"),
        ({"type": "object", "required": [{}]}, "names"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "required"),
        ({"enum": []}, "enum"),
        ({"enum": "abc"}, "enum"),
        ({"type": "string", "enum": [1]}, "type"),
        ({"anyOf": []}, "anyOf"),
        ({"allOf": [{"type": "null"}, {"type": "string"}]}, "incompatible"),
        ({"$ref": 3}, "ref"),
        ({"$ref": "https://example.org/schema"}, "into the schema itself"),
        ({"$ref": "#/$defs/a"}, "points to nothing"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, "itself"),
        ({"type": "array", "minItems": -1}, "minItems"),
        ({"type": "array", "minItems": True}, "minItems"),
        ({"type": "array", "maxItems": 10**9}, "maxItems"),
        ({"type": "string", "minLength": 5, "maxLength": 4}, "maxLength"),
        ({"type": "object", "properties": {f"p{n}": {"maxLength": 1000} for n in range(21)}}, "20000"),
        ({"enum": ["x" * 1000 + str(n) for n in range(300)]}, "too long"),
        ({"type": "object", "properties": {f"p{n}": {"type": "null"} for n in range(1001)}}, "1000 sub-schemas"),
        (json.loads('{"items":' * 500 + "{}" + "}" * 500), "within each other"),
        ({"$defs": CHAIN, "$ref": "#/$defs/d0"}, "points to nothing"),
        ({"type": "string", "pattern": "["}, "regex"),
        ({"type": "string", "x-guidance": {"lenient": True}}, "x-guidance"),
        (nested(9), "1000 sub-schemas"),
    ],
)
@pytest.mark.timeout(10)
def test_what_a_grammar_cannot_hold_is_refused_in_words(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        json_grammar(schema)


@pytest.mark.parametrize("schema", [nested(7), hidden(30), {"$defs": {"n": LISTS_OF_ITSELF}, "$ref": "#/$defs/n"}])
@pytest.mark.timeout(10)
def test_what_stays_within_the_bounds_is_allowed(schema: dict[str, Any]) -> None:
    matcher = GRAMMARS.start(json_grammar(schema))
    for byte in b"[" * 5 if "properties" not in schema else b'{"p00": [[[[':
        matcher.compute_bitmask()
        assert matcher.consume_token(byte)
