"""JSON schema -> a grammar whose every text satisfies the schema.

A keyword that the grammar cannot enforce is rejected, never ignored. Every text that the grammar allows is JSON without
insignificant white space, except one blank after a colon or comma. If a schema allows several forms (other orders of
properties, additional properties), the grammar allows only the simplest one.
"""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from tg_llama.grammar.parameter_types import (
    ANNOTATIONS,
    KINDS,
    KNOWN,
    LISTS_OF_SCHEMAS,
    MAPS_OF_SCHEMAS,
    MAX_REFERENCE_CHARACTERS,
    SCHEMAS,
    fits,
    follow,
    merges,
)
from tg_llama.grammar.token_grammars import find_error
from tg_schema.errors import BadRequest

MAX_NODES = 1000
"""Most sub-schemas in a schema."""

MAX_DEPTH = 32
"""Deepest nesting of sub-schemas."""

MAX_REPETITION = 1000
"""Limit of minItems, maxItems, minLength and maxLength, because a grammar has states for each repetition."""

MAX_TOTAL_REPETITIONS = 20_000
"""Limit of the sum of all these."""

MAX_SCHEMA_CHARACTERS = 200_000
"""Most characters of a schema."""

MAX_PATTERNS = 8
"""Most patterns and formats that one text must match, because each doubles the work of finding such a text."""

_ANY: dict[str, Any] = {
    "anyOf": [
        {"$ref": "#/$defs/object"},
        {"$ref": "#/$defs/array"},
        {"type": ["string", "number", "boolean", "null"]},
    ]
}
ANY_OBJECT: dict[str, Any] = {
    "$ref": "#/$defs/object",
    "$defs": {
        "object": {"type": "object", "additionalProperties": _ANY},
        "array": {"type": "array", "items": _ANY},
    },
}
"""The schema of JSON mode without a schema. It names all types, so that its numbers are bounded."""

# Allow every alternative of a oneOf, even if the value also satisfies another one.
_FORM = {"item_separator": ", ?", "key_separator": ": ?", "whitespace_flexible": False, "coerce_one_of": True}

_MAX_NUMBER = 10**15 - 1
_INTEGER = {"type": "integer", "minimum": -_MAX_NUMBER, "maximum": _MAX_NUMBER}
_NUMBERS: dict[str, dict[str, Any]] = {"number": _INTEGER | {"type": "number", "multipleOf": 1e-9}, "integer": _INTEGER}
# Without bounds a weak model repeats a digit until its tokens run out. llguidance can bound digits only by bounding the
# value; then it allows no exponents.

_DAY = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_HOUR = r"([01][0-9]|2[0-3])"
_CLOCK = rf"{_HOUR}:[0-5][0-9]:[0-5][0-9](Z|[+-]{_HOUR}:[0-5][0-9])"
# llguidance's own patterns allow dates that do not exist.
_PATTERNS = {"date": f"^{_DAY}$", "time": f"^{_CLOCK}$", "date-time": f"^{_DAY}T{_CLOCK}$"}
_FORMATS = {"duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}


def json_grammar(schema: dict[str, Any]) -> str:
    """The grammar of `schema`. Takes milliseconds for the largest schema allowed.

    Raises:
        BadRequest: the schema is wrong, too large, or uses what a grammar cannot enforce; the message says what.
    """
    return f"start: {json_rule(schema)}"


def json_rule(schema: dict[str, Any]) -> str:
    """The body of a rule that matches the schema's values, for use in a larger grammar. Raises as `json_grammar`."""
    _Check().run(schema)
    count = _PatternCount(schema)
    if any(count.of(inner) > MAX_PATTERNS for inner in walk_schemas(schema)):
        raise BadRequest(f"schema: a text may have to match {MAX_PATTERNS} patterns and formats; join them into fewer")
    text = json.dumps(
        _simplified(schema) | {"x-guidance": _FORM, "x-numbers": _NUMBERS}, ensure_ascii=False, separators=(",", ":")
    )
    if len(text) > MAX_SCHEMA_CHARACTERS:
        raise BadRequest("schema: it is too long for this provider; name fewer properties and values")
    rule = f"%json {text}"
    error = find_error(f"start: {rule}")
    if error is not None:
        raise BadRequest(_words(error))
    return rule


def _words(error: str) -> str:
    if not error or "stack level" in error:
        return "schema: no value satisfies it, or a $ref leads to nothing but itself"
    if "Pointer" in error:
        return "schema: a $ref points to nothing"
    return f"schema: this provider cannot enforce it: {error}"


class _Check:
    """Checks what llguidance overlooks, processes too slowly, or reports in terms that clients do not know."""

    def __init__(self) -> None:
        self._nodes = self._repetitions = 0

    def run(self, schema: object, depth: int = 0) -> None:
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise BadRequest("schema: every sub-schema must be an object, true or false")
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise BadRequest(f"schema: it may have {MAX_NODES} sub-schemas, {MAX_DEPTH} within each other")
        for word, value in schema.items():
            if word not in KNOWN:
                raise BadRequest(f"schema: this provider cannot enforce {json.dumps(word)[:100]}; leave it out")
            is_right, sentence = _RULES.get(word, _NO_RULE)
            if not is_right(value):
                raise BadRequest(f"schema: {sentence}")
        self._bounds(schema, "minItems", "maxItems")
        self._bounds(schema, "minLength", "maxLength")
        for inner in _inner(schema):
            self.run(inner, depth + 1)

    def _bounds(self, schema: dict[str, Any], low: str, high: str) -> None:
        least, most = schema.get(low, 0), schema.get(high)
        for name, value in ((low, least), (high, most)):
            if value is not None and not (fits(value, "integer") and 0 <= value <= MAX_REPETITION):
                raise BadRequest(f"schema: {name} must be a whole number from 0 to {MAX_REPETITION}")
        if most is not None and most < least:
            raise BadRequest(f"schema: {high} must not be below {low}")
        self._repetitions += most or least
        if self._repetitions > MAX_TOTAL_REPETITIONS:
            raise BadRequest(f"schema: the sum of its lengths may be at most {MAX_TOTAL_REPETITIONS}")


class _PatternCount:
    """How many patterns and formats the text of a sub-schema has to match."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        # Keyed by identity. Each count starts at 0, so a recursive schema counts once.
        self._known: dict[int, int] = {}

    def of(self, schema: object) -> int:
        if not isinstance(schema, dict):
            return 0
        if id(schema) not in self._known:
            self._known[id(schema)] = 0
            own = len(schema.keys() & {"pattern", "format"})
            all_of, *others = (list(map(self.of, _listed(schema, word))) for word in ("allOf", "anyOf", "oneOf"))
            referred = self.of(follow(schema["$ref"], self._root)) if "$ref" in schema else 0
            self._known[id(schema)] = own + sum(all_of) + sum(max(other, default=0) for other in others) + referred
        return self._known[id(schema)]


def _listed(schema: dict[str, Any], word: str) -> list[Any]:
    value = schema.get(word)
    return value if isinstance(value, list) else []


def _are_kinds(value: object) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return bool(kinds) and all(isinstance(kind, str) and kind in KINDS for kind in kinds)


_NO_RULE: tuple[Callable[[object], bool], str] = (lambda _: True, "")
_RULES: dict[str, tuple[Callable[[object], bool], str]] = {
    "type": (_are_kinds, f'the "type" of every sub-schema must be one of {", ".join(KINDS)}'),
    "enum": (
        lambda value: isinstance(value, list) and 0 < len(value) <= MAX_NODES,
        f"enum must be a list of 1 to {MAX_NODES} values",
    ),
    "$ref": (
        lambda value: isinstance(value, str) and value.startswith("#") and len(value) <= MAX_REFERENCE_CHARACTERS,
        (
            "$ref must point into the schema itself, for instance to #/$defs/name, in at most "
            f"{MAX_REFERENCE_CHARACTERS} characters"
        ),
    ),
    "required": (
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
        "required must be a list of names",
    ),
}
"""A check of each keyword's value, and the error if the check fails."""


def _inner(schema: dict[str, Any]) -> Iterator[object]:
    """The sub-schemas of a schema. llguidance rejects keywords whose values have the wrong type."""
    for word, value in schema.items():
        if word in MAPS_OF_SCHEMAS and isinstance(value, dict):
            yield from value.values()
        elif word in LISTS_OF_SCHEMAS and isinstance(value, list):
            yield from value
        elif word in SCHEMAS:
            yield value


def walk_schemas(schema: object) -> Iterator[dict[str, Any]]:
    """A schema and all its sub-schemas; a caller may change each one before it asks for the next."""
    if isinstance(schema, dict):
        yield schema
        for inner in _inner(schema):
            yield from walk_schemas(inner)


def _simplified(schema: dict[str, Any]) -> dict[str, Any]:
    schema = copy.deepcopy(schema)
    # A closed schema cannot be merged with another schema that names other properties.
    closes = not any(merges(inner) for inner in walk_schemas(schema))
    for inner in walk_schemas(schema):
        _replace_format(inner)
        _bound_number(inner)
        if closes:
            _close_object(inner)
            _close_tuple(inner)
    return schema


def _replace_format(schema: dict[str, Any]) -> None:
    form = schema.get("format")
    if isinstance(form, str) and form in _PATTERNS and "pattern" not in schema:
        schema["pattern"] = _PATTERNS[schema.pop("format")]
    elif form is not None and not (isinstance(form, str) and form in _FORMATS | _PATTERNS.keys()):
        # An unknown format does not restrict the value.
        del schema["format"]


def _bound_number(schema: dict[str, Any]) -> None:
    kinds = schema.get("type")
    kind = next((kind for kind in _NUMBERS if kind == kinds or (isinstance(kinds, list) and kind in kinds)), None)
    if kind is None or schema.keys() & {"enum", "const", "multipleOf"}:
        return
    if kinds == kind and schema.keys() <= ANNOTATIONS | {"type"}:
        # Share one definition among all numbers, since an automaton that counts digits is large.
        del schema["type"]
        schema["$ref"] = f"#/x-numbers/{kind}"
        return
    low, high = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
    unbounded = {word: value for word, value in _NUMBERS[kind].items() if word not in schema}
    if schema.keys() & low:
        unbounded.pop("minimum", None)
    if schema.keys() & high:
        unbounded.pop("maximum", None)
    schema |= unbounded


def _close_object(schema: dict[str, Any]) -> None:
    properties, more = schema.get("properties"), schema.get("additionalProperties", True)
    if not isinstance(properties, dict) or not properties or more is False:
        return
    if "patternProperties" in schema or "minProperties" in schema:
        return
    schema["properties"] = properties | {name: more for name in schema.get("required", []) if name not in properties}
    schema["additionalProperties"] = False


def _close_tuple(schema: dict[str, Any]) -> None:
    items = schema.get("prefixItems")
    if isinstance(items, list) and "items" not in schema and schema.get("minItems", 0) <= len(items):
        schema["items"] = False
        # Require all items of a tuple, as the schema's author would expect.
        schema.setdefault("minItems", min(len(items), schema.get("maxItems", len(items))))
