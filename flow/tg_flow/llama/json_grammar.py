"""JSON schema -> GBNF grammar, whose every text satisfies the schema.

A keyword that the grammar cannot enforce is rejected, never ignored. Every text that it allows is JSON without
insignificant white space, except one blank after a colon or comma. If a schema allows more (other orders of properties,
additional properties), the grammar uses the simplest form.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tg_flow.llama.schema_keywords import ANNOTATIONS, KINDS, KNOWN, fits, kinds_of, without
from tg_schema.errors import BadRequest

MAX_NODES = 1000
"""Sub-schemas in a schema; every use of a reference counts once."""

MAX_DEPTH = 32
"""Nesting depth of sub-schemas."""

MAX_REPETITION = 1000
"""Limit of minItems, maxItems, minLength and maxLength: llama.cpp makes a rule for each repetition."""

MAX_TOTAL_REPETITIONS = 20_000
"""Limit of all these together: a stream that starts must not delay those that run."""

MAX_GRAMMAR_CHARACTERS = 200_000
"""Characters of a grammar."""

MAX_READINGS = 64
"""Parses of a text that the grammar may have open at once: each costs time at each token."""

ANY_STRUCTURE: dict[str, Any] = {"anyOf": [{"type": "object"}, {"type": "array"}]}
"""The schema of JSON mode without a schema."""

LEADS_TO_ITSELF = "schema: a $ref leads to nothing but itself"

_HEX = "[0-9a-fA-F]"

_BUILT_IN = {
    "ws": '" "?',
    "char": rf'[^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CeEfF] {_HEX} | [dD] [0-7]) {_HEX} {_HEX})',
    "digits": '"0" | [1-9] [0-9]{0,14}',
    "string": r'"\"" char* "\""',
    "integer": '"-"? digits',
    "number": '"-"? digits ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "object | array | string | number | boolean | null",
    "object": '"{" (string ":" ws value ("," ws string ":" ws value)*)? "}"',
    "array": '"[" (value ("," ws value)*)? "]"',
    "day": '[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | "1" [0-9] | "2" [0-8])',
    "hour": '[01] [0-9] | "2" [0-3]',
    "clock": 'hour ":" [0-5] [0-9] ":" [0-5] [0-9] ("Z" | [-+] hour ":" [0-5] [0-9])',
    "format-date": '"\\"" day "\\""',
    "format-time": '"\\"" clock "\\""',
    "format-date-time": '"\\"" day "T" clock "\\""',
    "format-uuid": rf'"\"" {_HEX}{{8}} "-" {_HEX}{{4}} "-" {_HEX}{{4}} "-" {_HEX}{{4}} "-" {_HEX}{{12}} "\""',
}


def json_grammar(schema: dict[str, Any]) -> str:
    """The grammar of `schema`, with the start rule `root`. Takes milliseconds for the largest schema allowed.

    Raises:
        BadRequest: the schema is wrong, too large, or uses what a grammar cannot enforce; the message says what.
    """
    root, rules = json_rules(schema)
    return write_grammar({"root": root} | rules)


def json_rules(schema: dict[str, Any], prefix: str = "") -> tuple[str, dict[str, str]]:
    """The body of the schema's rule, and the rules that it needs beside the built-in ones, as a part of a grammar.

    The names of the rules begin with `prefix`. Raises as `json_grammar`.
    """
    return _Grammar(schema, prefix).parts()


def write_grammar(rules: dict[str, str]) -> str:
    """The grammar of some rules and the built-in ones. Raises: BadRequest, if it is too long."""
    text = "\n".join(f"{name} ::= {body}" for name, body in (rules | _BUILT_IN).items())
    if len(text) > MAX_GRAMMAR_CHARACTERS:
        raise BadRequest("schema: it is too long for this provider; name fewer properties and values")
    return text


class _Rule(NamedTuple):
    """A rule's name (or short body), and the most parses that a text may have open within it."""

    text: str
    readings: int = 1


class _Grammar:
    def __init__(self, schema: dict[str, Any], prefix: str) -> None:
        self._schema = schema
        self._prefix = prefix
        self._rules: dict[str, str] = {}
        self._references: dict[str, _Rule] = {}
        self._open: set[str] = set()
        self._recursive = False
        self._nodes = self._repetitions = 0

    def parts(self) -> tuple[str, dict[str, str]]:
        root = self._rule(self._schema, 0)
        if root.readings > (1 if self._recursive else MAX_READINGS):
            raise BadRequest(
                "schema: alternatives that begin alike are nested too deep for this model; tell them apart by type"
            )
        return root.text, self._rules

    def _name_rule(self, body: str, *within: _Rule) -> _Rule:
        name = f"{self._prefix}r{len(self._rules)}"
        self._rules[name] = body
        return _Rule(name, max([rule.readings for rule in within], default=1))

    def _rule(self, schema: object, depth: int) -> _Rule:
        """The rule of one sub-schema."""
        if schema is True or schema == {}:
            return _Rule("value")
        if not isinstance(schema, dict):
            raise BadRequest("schema: every sub-schema must be an object or true")
        if "$ref" in schema:
            self._count(schema, depth)
            return self._reference(self._resolve(_pointer(schema)), depth)
        alternatives = list(self._alternatives(schema, set(), depth))
        if not alternatives:
            raise BadRequest(LEADS_TO_ITSELF)
        if len(alternatives) == 1:
            return self._single(alternatives[0], depth)
        rules = [self._single(alternative, depth) for alternative in alternatives]
        union = self._name_rule(" | ".join([rule.text for rule in rules]), *rules)
        return union._replace(readings=union.readings * self._alike(alternatives))

    def _count(self, schema: dict[str, Any], depth: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise BadRequest(f"schema: it may have {MAX_NODES} sub-schemas, {MAX_DEPTH} within each other")
        unknown = next((word for word in schema if word not in KNOWN), None)
        if unknown is not None:
            raise BadRequest(f"schema: this provider cannot hold a model to {json.dumps(unknown)[:100]}; leave it out")

    def _alternatives(self, schema: object, seen: set[str], depth: int) -> Iterator[dict[str, Any]]:
        """The schema's alternatives, including those of nested unions; a reference comes once."""
        if schema is True or schema == {}:
            schema = {"type": list(KINDS)}
        if not isinstance(schema, dict):
            raise BadRequest("schema: every sub-schema must be an object or true")
        self._count(schema, depth)
        plain = without(schema, ANNOTATIONS)
        choices = _choices(plain)
        if choices is not None:
            for choice in choices:
                yield from self._alternatives(choice, seen, depth + 1)
        elif "$ref" not in plain:
            yield plain
        elif (pointer := self._resolve(_pointer(plain))) not in seen:
            seen.add(pointer)
            target = self._target(pointer)
            union = isinstance(target, dict) and _choices(without(target, ANNOTATIONS)) is not None
            if union:
                yield from self._alternatives(target, seen, depth + 1)
            else:
                yield {"$ref": pointer}

    def _behind(self, pointer: str, reference: dict[str, Any], seen: set[str], depth: int) -> Iterator[dict[str, Any]]:
        """A reference to a union counts as its alternatives, a reference to anything else as itself."""
        inner = list(self._alternatives(self._target(pointer), seen, depth + 1))
        if len(inner) == 1 and "$ref" not in inner[0]:
            yield reference
        else:
            yield from inner

    def _target(self, pointer: str) -> object:
        target: Any = self._schema
        for step in pointer.removeprefix("#").split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        if target is None:
            raise BadRequest("schema: a $ref points to nothing")
        return target

    def _resolve(self, pointer: str) -> str:
        """The target of a chain of references."""
        seen: set[str] = set()
        while isinstance(target := self._target(pointer), dict) and "$ref" in target:
            if pointer in seen:
                raise BadRequest(LEADS_TO_ITSELF)
            seen.add(pointer)
            pointer = _pointer(target)
        return pointer

    def _alike(self, alternatives: list[dict[str, Any]]) -> int:
        """The most alternatives that begin with the same bracket."""
        counts = dict.fromkeys(KINDS, 0)
        for alternative in alternatives:
            schema = self._target(alternative["$ref"]) if "$ref" in alternative else alternative
            for kind in kinds_of(schema):
                counts[kind] += 1
        return max(counts["object"], counts["array"], 1)

    def _single(self, schema: dict[str, Any], depth: int) -> _Rule:
        if "$ref" in schema:
            return self._reference(schema["$ref"], depth)
        if "const" in schema or "enum" in schema:
            return self._enum(schema)
        kinds = kinds_of(schema)
        if len(kinds) != 1:
            raise BadRequest(f'schema: the "type" of every sub-schema must be one of {", ".join(KINDS)}')
        if kinds[0] == "object":
            return self._object(schema, depth)
        if kinds[0] == "array":
            return self._array(schema, depth)
        return self._string(schema) if kinds[0] == "string" else _Rule(kinds[0])

    def _reference(self, pointer: str, depth: int) -> _Rule:
        known = self._references.get(pointer)
        if known is not None:
            self._recursive = self._recursive or pointer in self._open
            return known
        name = f"{self._prefix}d{len(self._references)}"
        # Known before its body is made: a schema within it that refers to it finds this rule.
        self._references[pointer] = _Rule(name)
        self._open.add(pointer)
        rule = self._rule(self._target(pointer), depth + 1)
        self._open.discard(pointer)
        self._rules[name] = rule.text
        self._references[pointer] = _Rule(name, rule.readings)
        return self._references[pointer]

    def _enum(self, schema: dict[str, Any]) -> _Rule:
        values = schema.get("enum", [schema.get("const")])
        kind = schema.get("type")
        if not isinstance(values, list) or len(values) > MAX_NODES:
            raise BadRequest(f"schema: enum must be a list of at most {MAX_NODES} values")
        fitting = [value for value in values if kind is None or fits(value, kind)]
        if not fitting:
            raise BadRequest("schema: an enum or const has no value of its type")
        return self._name_rule(" | ".join([literal(value) for value in fitting]))

    def _object(self, schema: dict[str, Any], depth: int) -> _Rule:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        more = schema.get("additionalProperties", True)
        if not isinstance(properties, dict) or not _is_names(required):
            raise BadRequest("schema: properties must be an object, required a list of names")
        for name in required:
            if name not in properties:
                if more is False:
                    raise BadRequest("schema: required names a property that properties does not have")
                properties = properties | {name: more}
        if properties:
            return self._properties(properties, set(required), depth)
        if more is False:
            return _Rule('"{}"')
        value = self._rule(more, depth + 1)
        pair = f'string ":" ws {value.text}'
        return self._name_rule(f'"{{" ({pair} ("," ws {pair})*)? "}}"', value)

    def _properties(self, properties: dict[str, Any], required: set[str], depth: int) -> _Rule:
        """Properties in the schema's order: `first` has nothing before it, `following` needs a comma."""
        values = {name: self._rule(schema, depth + 1) for name, schema in properties.items()}
        first, following = "", ""
        # From the last one back, so that each rule names the one for what may follow, and their number stays linear.
        for name, value in reversed(values.items()):
            pair = self._name_rule(f'{literal(name)} ":" ws {value.text}').text
            here, later = f"{pair} {following}", f'"," ws {pair} {following}'
            if name not in required:
                here = f"{here} | {first}" if first else f"({here})?"
                later = f"{later} | {following}" if following else f"({later})?"
            first, following = self._name_rule(here).text, self._name_rule(later).text
        return self._name_rule(f'"{{" {first} "}}"', *values.values())

    def _array(self, schema: dict[str, Any], depth: int) -> _Rule:
        least, most = self._bounds(schema, "minItems", "maxItems")
        if "prefixItems" in schema:
            return self._tuple(schema, least, most, depth)
        item = self._rule(schema.get("items", True), depth + 1)
        if most == 0:
            return _Rule('"[]"')
        many = f"{{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
        items = f'{item.text} ("," ws {item.text}){many}'
        return self._name_rule(f'"[" {items} "]"' if least else f'"[" ({items})? "]"', item)

    def _tuple(self, schema: dict[str, Any], least: int, most: int | None, depth: int) -> _Rule:
        items = schema["prefixItems"]
        if not isinstance(items, list) or not items:
            raise BadRequest("schema: prefixItems must be a list of schemas")
        if least > len(items) or (most is not None and most < len(items)):
            raise BadRequest("schema: minItems and maxItems must agree with prefixItems")
        rules = [self._rule(item, depth + 1) for item in items]
        return self._name_rule('"[" ' + ' "," ws '.join([rule.text for rule in rules]) + ' "]"', *rules)

    def _string(self, schema: dict[str, Any]) -> _Rule:
        least, most = self._bounds(schema, "minLength", "maxLength")
        if least or most is not None:
            return self._name_rule(rf'"\"" char{{{least},{"" if most is None else most}}} "\""')
        form = schema.get("format")
        return _Rule(f"format-{form}" if isinstance(form, str) and f"format-{form}" in _BUILT_IN else "string")

    def _bounds(self, schema: dict[str, Any], low: str, high: str) -> tuple[int, int | None]:
        least, most = schema.get(low, 0), schema.get(high)
        for name, value in ((low, least), (high, most)):
            if value is not None and not (fits(value, "integer") and 0 <= value <= MAX_REPETITION):
                raise BadRequest(f"schema: {name} must be a whole number from 0 to {MAX_REPETITION}")
        if most is not None and most < least:
            raise BadRequest(f"schema: {high} must not be below {low}")
        self._repetitions += most or least
        if self._repetitions > MAX_TOTAL_REPETITIONS:
            raise BadRequest(f"schema: its lengths may be {MAX_TOTAL_REPETITIONS} altogether")
        return least, most


def _choices(plain: dict[str, Any]) -> list[Any] | None:
    """The alternatives of a union; None for any other schema."""
    if isinstance(plain.get("type"), list) and plain["type"]:
        return [plain | {"type": kind} for kind in plain["type"]]
    word = next((word for word in ("anyOf", "oneOf", "allOf") if word in plain), None)
    if word is None:
        return None
    choices = plain[word]
    if len(plain) > 1 or not isinstance(choices, list) or not choices:
        raise BadRequest(f"schema: {word} must be a list, and cannot have other keywords beside it")
    if word == "allOf" and len(choices) > 1:
        raise BadRequest("schema: this provider cannot hold a model to allOf with several schemas")
    return choices


def _pointer(schema: dict[str, Any]) -> str:
    pointer = schema["$ref"]
    if not isinstance(pointer, str) or not pointer.startswith("#"):
        raise BadRequest("schema: $ref must point into the schema itself, for instance to #/$defs/name")
    if len(without(schema, ANNOTATIONS)) > 1:
        raise BadRequest("schema: $ref cannot have other keywords beside it")
    return pointer


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def literal(value: object, *, quoted: bool = True) -> str:
    """A GBNF literal of `value` as JSON, or, not `quoted`, of a text as it is."""
    text = json.dumps(value, ensure_ascii=False) if quoted else str(value)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n") + '"'
