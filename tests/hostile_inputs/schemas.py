"""Small schemas that mean much work, and values for them."""

from collections.abc import Iterator, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, Final

from tests.hostile_inputs.texts import make_patterns

WORDS: Final = ("allOf", "anyOf", "oneOf", "items", "properties", "dependentSchemas", "if")
"""By which `double` doubles."""
CLASSES: Final = {"allOf": [{"pattern": rf"\pL{{{number % 200},200}}"} for number in range(1000)]}
"""To compile it takes minutes and gigabytes."""
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def double(word: str, levels: int, *, beside: Mapping[str, Any] = _NOTHING, anchors: bool = False) -> dict[str, Any]:
    """Definitions that each refer twice to the next one, by `word`.

    Args:
        word: a keyword.
        levels: the number of definitions; there are 2 to the power of it ways to the last one.
        beside: stands beside the keyword.
        anchors: whether they are referred to by anchors, not by their places.
    """

    def name(level: int) -> dict[str, str]:
        return {"$ref": f"#d{level}" if anchors else f"#/$defs/d{level}"}

    defined: dict[str, Any] = {
        f"d{level}": {**beside, **_use(word, name(level + 1)), **({"$anchor": f"d{level}"} if anchors else {})}
        for level in range(levels)
    }
    leaf = {"type": "object", **({"$anchor": f"d{levels}"} if anchors else {})}
    return {**name(0), "$defs": defined | {f"d{levels}": leaf}}


def _use(word: str, inner: dict[str, str]) -> dict[str, Any]:
    match word:
        case "items" | "properties":
            twice = {"allOf": [inner, inner]}
            return {word: twice if word == "items" else {"a": twice}}
        case "dependentSchemas":
            return {word: {"a": inner, "b": inner}}
        case "if":
            return {"if": inner, "then": inner}
        case _:
            return {word: [inner, inner]}


def far_apart(characters: int) -> dict[str, Any]:
    """A schema that leads back to itself by a path whose characters are encoded: it is decoded at each level."""
    back, there = {"$ref": "#/$defs/n"}, {"$ref": f"#/$defs/{'%41' * characters}"}
    return back | {"$defs": {"n": {"properties": {"a": there}}, "A" * characters: back}}


def make_schemas(random: Random, size: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Schemas of a few kilobytes by name; `size` is how many levels, alternatives or repetitions they have."""
    for word in WORDS:
        yield f"double {word}", double(word, size)
    for word in ("allOf", "anyOf"):
        yield f"double {word} by anchors", double(word, size, anchors=True)
        yield (
            f"double {word} and unevaluated",
            double(word, size, beside={"unevaluatedProperties": {"type": "integer"}}),
        )
    yield "not a string, at last", {"not": {"not": double("anyOf", size) | {"type": "string"}}}
    either: list[Any] = [{"anyOf": [{"properties": {f"{one}{at}": {}}} for one in "ab"]} for at in range(size)]
    yield "product of alternatives", {"type": "object", "allOf": either}
    yield (
        "leads to itself twice",
        {"$ref": "#/$defs/n", "$defs": {"n": {"items": {"allOf": [{"$ref": "#/$defs/n"}] * 2}}}},
    )
    yield "leads to itself at once", {"anyOf": [{"$ref": "#"}, {"not": {"$ref": "#"}}]}
    yield (
        "chain",
        {"$ref": "#/$defs/d0", "$defs": {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(50 * size)}},
    )
    yield "nested unevaluated", _nest({"unevaluatedProperties": {"type": "integer"}}, size)
    yield "nested contains", _nest({"contains": {"const": 7}, "uniqueItems": True}, size, "items")
    patterns = list(make_patterns(random, size))
    yield "patterns", {"allOf": [{"pattern": pattern} for pattern in patterns]}
    yield "patterns of names", {"patternProperties": {pattern: {} for pattern in patterns}}
    yield "classes", {"allOf": [{"pattern": rf"\pL{{{at},200}}"} for at in range(size)]}
    yield "repetitions", {"type": "array", "items": {"maxLength": 10**9, "minLength": 10**9}, "maxItems": 10**9}
    yield "numbers", {"type": "number", "multipleOf": 1e-300, "minimum": -(10**308), "maximum": 10**308}
    yield "values", {"enum": [{"a": [at]} for at in range(100 * size)]}
    yield "names", {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(50 * size)}}
    yield "a long path", {"$ref": "#" + "/properties/a" * 1000 * size, "properties": {"a": {}}}
    yield "a long path at each level", far_apart(200 * size)
    yield "counts of many digits", {"pattern": f"(a){{{'9' * 4000}}}" * 20 * size}
    yield "formats", {"$schema": "http://json-schema.org/draft-07/schema#", "items": {"format": "regex"}}


def make_values(size: int) -> Iterator[Any]:
    """Values that take long to check."""
    nested: Any = {"a": 1, "b": 2}
    for _ in range(size):
        nested = {"a": nested, "b": 1}
    deep: Any = []
    for _ in range(size):
        deep = [deep]
    yield from ({}, nested, deep, "a" * 100 * size + "!", [f"(a{{{at},500}}){{1,50}}" for at in range(size)])


def _nest(fields: dict[str, Any], levels: int, word: str = "allOf") -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {**fields, word: [schema] if word == "allOf" else schema}
    return schema
