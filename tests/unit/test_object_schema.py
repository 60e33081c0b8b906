"""Schemas: what a check of a value against one may cost is known before it begins, and bounded where it is not."""

import re
from collections.abc import AsyncIterator
from resource import RLIMIT_AS, getrlimit, setrlimit
from typing import Any

import pytest

from tests.hostile_inputs.schemas import CLASSES, double, far_apart
from tests.hostile_inputs.work import read_peak_bytes
from tg_base.llm import BadSchema, ObjectSchema, object_schema
from tg_base.llm.object_schema import CHECK_SECONDS, MAX_CHECK_BYTES, QUICK_STEPS, _find_here
from tg_base.llm.schema_cost import UNKNOWN, SchemaCost
from tg_base.runtime import WorkerPool
from tg_schema import encode

FILTERS: Any = {
    "$ref": "#/$defs/filter",
    "$defs": {
        "filter": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in ("and", "or", "not", "is")]},
        "and": {
            "properties": {"op": {"const": "and"}, "of": {"items": {"$ref": "#/$defs/filter"}}},
            "required": ["op"],
        },
        "or": {"properties": {"op": {"const": "or"}, "of": {"items": {"$ref": "#/$defs/filter"}}}, "required": ["op"]},
        "not": {"properties": {"op": {"const": "not"}, "of": {"$ref": "#/$defs/filter"}}, "required": ["op"]},
        "is": {"properties": {"op": {"const": "is"}, "value": {"type": ["string", "number"]}}, "required": ["value"]},
    },
}
TREE: Any = {"properties": {"name": {"type": "string"}, "children": {"items": {"$ref": "#"}}}}
ROWS: Any = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "uniqueItems": True,
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "free text " * 20},
                    "kind": {"enum": ["a", "b", "c", "d"]},
                },
                "required": ["id", "note"],
                "additionalProperties": False,
            },
        }
    },
}
LITTLE_BYTES = 400 * 1024**2
"""Of memory, with all that a worker process has loaded."""
ROW = {"id": "01234567-89ab-cdef-0123456789ab", "note": None, "kind": "a"}


def nest(levels: int) -> Any:
    """A tree of so many levels."""
    value: Any = {"name": "leaf"}
    for _ in range(levels):
        value = {"name": "a", "children": [value]}
    return value


@pytest.fixture
async def checkers() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool()
    yield pool
    await pool.aclose()


async def warm(pool: WorkerPool) -> None:
    """Return once a process of the pool answers: then a call that is ended was within its function."""
    assert await pool.call(_find_here, b"{}", b"null", CHECK_SECONDS) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (FILTERS, {"op": "and", "of": [{"op": "not", "of": {"op": "is", "value": 1}}] * 3}),
        (TREE, {"name": "a", "children": [{"name": "b", "children": [{"name": "c"}] * 20}] * 20}),
        (TREE, nest(200)),
        (ROWS, {"rows": [ROW | {"kind": kind} for kind in "abcd"] * 10}),
        ({"type": "object"}, {"a": list(range(10_000))}),
        ({"properties": {f"p{number}": {"type": ["string", "null"]} for number in range(200)}}, {"p1": "a" * 5000}),
    ],
    ids=["filters", "tree", "deep tree", "rows", "object", "many properties"],
)
def test_what_people_ask_for_is_checked_at_once(schema: Any, value: Any) -> None:
    cost = SchemaCost(schema, len(encode(schema)))
    assert cost.quick
    assert not cost.too_large
    assert cost.of(encode(value)) <= QUICK_STEPS


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf", "items", "properties", "dependentSchemas", "if"])
async def test_doubling_is_refused_before_anything_is_checked(word: str) -> None:
    with pytest.raises(BadSchema, match="too much work"):
        ObjectSchema(double(word, 40))


@pytest.mark.parametrize(
    "schema",
    [far_apart(500), {"pattern": f"(a){{{'9' * 4000}}}" * 3}, {"patternProperties": {"a" * 600: {}}}],
    ids=["a long path", "counts of many digits", "a long pattern"],
)
def test_what_takes_long_to_count_is_not_counted(schema: Any) -> None:
    """Paths are followed at each level of a value, and counts multiplied."""
    assert SchemaCost(schema, 100).of(b"{}") == UNKNOWN


def fail_at_last(schema: dict[str, Any], levels: int) -> dict[str, Any]:
    """The same where what it doubles is valid for no object, so that all ways to it are taken, and told."""
    schema["$defs"][f"d{levels}"]["type"] = "string"
    return schema


async def test_alternatives_that_all_fail_take_no_memory_here(
    checkers: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reasons of all of them took 666 MB. What has too many ways is refused; what cannot be counted is bounded."""
    with pytest.raises(BadSchema, match="too much work"):
        ObjectSchema(fail_at_last(double("anyOf", 16), 16))
    # The library writes it when it has no memory left, for which it needs some.
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    await warm(checkers)
    assert (await checkers.call(getrlimit, RLIMIT_AS))[0] == MAX_CHECK_BYTES
    # Less, so that it is cheap to reach; and no bound of CPU time, which might be reached before.
    await checkers.call(setrlimit, RLIMIT_AS, (LITTLE_BYTES, LITTLE_BYTES))
    monkeypatch.setattr(object_schema, "CHECK_SECONDS", 50.0)
    before, uncounted = read_peak_bytes(), ObjectSchema(fail_at_last(double("anyOf", 17, anchors=True), 17))
    with pytest.raises(BadSchema, match="too much work"):
        await uncounted.fault({}, checkers)
    assert read_peak_bytes() - before < 50 * 1024**2
    await warm(checkers)


async def test_what_cannot_be_counted_ends_in_time(checkers: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, which is ended; here it would take minutes, or all memory."""
    await warm(checkers)
    monkeypatch.setattr(object_schema, "CHECK_SECONDS", 0.3)
    compiled, checked = ObjectSchema(CLASSES), ObjectSchema(double("allOf", 40, anchors=True))
    with pytest.raises(BadSchema, match="too much work"):
        await compiled.check(checkers)
    await warm(checkers)
    with pytest.raises(BadSchema, match="too much work"):
        await checked.fault({}, checkers)


async def test_both_ways_say_the_same(checkers: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in less CPU time than the other process needs to start, which may take long on a loaded machine."""
    monkeypatch.setattr(object_schema, "CHECK_SECONDS", 0.1)
    here, elsewhere = ObjectSchema(ROWS), ObjectSchema(ROWS | {"$dynamicAnchor": "a", "allOf": [{"$dynamicRef": "#a"}]})
    await elsewhere.check(checkers)
    for wrong in (
        {"rows": [ROW, ROW]},
        {"rows": [ROW | {"id": "x"}]},
        {"rows": [ROW | {"note": 1}]},
        {"rows": [ROW]},
    ):
        fault = await here.fault(wrong, checkers)
        assert await elsewhere.fault(wrong, checkers) == fault
        assert fault is None or re.search('"(uniqueItems|pattern|anyOf)"$', fault)
