"""Which types a tool's schema allows a parameter, and that no schema makes it much work to find out."""

import sys
from itertools import count
from typing import Any

import pytest

from tg_llama.grammar.parameter_types import KINDS, MAX_DEPTH, MAX_SCHEMAS, MAX_VALUES, ParameterTypes

ALL = set(KINDS)


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"type": 5}, ALL),
        (True, ALL),
        ({"enum": ["a", None, "b"]}, {"string", "null"}),
        ({"enum": [True, 1.5]}, {"boolean", "number"}),
        ({"const": 1}, {"integer", "number"}),
        ({"enum": ["a"] * MAX_VALUES}, {"string"}),
        ({"enum": ["a"] * (MAX_VALUES + 1)}, ALL),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"anyOf": [{"$ref": "#/$defs/text"}, {"$ref": "#/$defs/text"}]}, {"string"}),
        ({"allOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/text"}]}, {"string"}),
        ({"type": "null", "$ref": "#/$defs/text"}, ALL),
        ({"$ref": "#/$defs/a~1b"}, {"null"}),
        ({"$ref": "#/$defs/none"}, ALL),
        ({"$ref": "#/$defs/self"}, ALL),
        ({"anyOf": [{"type": "string"}] * MAX_SCHEMAS}, {"string"}),
        ({"anyOf": [{"type": "string"}] * (MAX_SCHEMAS + 1)}, ALL),
    ],
)
def test_the_types_that_a_schema_allows(schema: Any, types: set[str]) -> None:
    defs = {"text": {"type": "string"}, "a/b": {"type": "null"}, "self": {"$ref": "#/$defs/self"}}
    root = {"properties": {"x": schema}, "$defs": defs}
    assert ParameterTypes(root).of_property("x") == types
    assert ParameterTypes(root).of_property("y") == ALL


def test_references_are_followed_as_deep_as_is_said() -> None:
    defs: dict[str, Any] = {str(at): {"$ref": f"#/{at + 1}"} for at in range(MAX_DEPTH)}
    chain = defs | {str(MAX_DEPTH): {"type": "string"}}
    assert ParameterTypes(chain).of(chain["0"]) == {"string"}
    longer = {"first": {"$ref": "#/0"}} | chain
    assert ParameterTypes(longer).of(longer["first"]) == ALL


def each_leads_to_each(names: int) -> dict[str, Any]:
    return {str(name): {"anyOf": [{"$ref": f"#/$defs/{at}"} for at in range(names)]} for name in range(names)}


@pytest.mark.parametrize(
    "defs",
    [
        {"0": {"anyOf": [{"$ref": "#/$defs/0"} for _ in range(1000)]}},
        {"0": {"allOf": [{"$ref": "#/$defs/0"} for _ in range(100_000)]}},
        {"0": {"anyOf": [{"type": "string"} for _ in range(100_000)]}},
        {"0": {"enum": list(range(100_000))}},
        each_leads_to_each(100),
    ],
)
def test_no_schema_makes_much_work(defs: dict[str, Any]) -> None:
    properties = {str(at): {"$ref": "#/$defs/0"} for at in range(100)}
    types = ParameterTypes({"properties": properties, "$defs": defs})
    calls = count()
    sys.setprofile(lambda frame, event, _: next(calls) if event == "call" else None)
    try:
        for name in properties:
            types.of_property(name)
        first = next(calls)
        for name in properties:
            types.of_property(name)
    finally:
        sys.setprofile(None)
    assert first < 100 * MAX_SCHEMAS
    # What was read is not read again.
    assert next(calls) - first < 10 * len(properties)
