"""JSON schema -> its keywords, and the possible types of a parameter, for formats of calls that do not show types."""

from collections.abc import Mapping
from typing import Any, Final

KINDS = ("object", "array", "string", "number", "integer", "boolean", "null")

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"$schema", "$id", "$comment", "$defs", "definitions", "contentMediaType", "contentEncoding"}
)
"""Keywords that do not affect validity. `default` and `examples` may hold anything."""

MAPS_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
LISTS_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SCHEMAS = frozenset({"items", "additionalProperties"})
"""Keywords whose values hold sub-schemas: in a map, in a list, or as the value itself."""

KNOWN = ANNOTATIONS.union(
    MAPS_OF_SCHEMAS,
    LISTS_OF_SCHEMAS,
    SCHEMAS,
    {"type", "enum", "const", "$ref", "required", "minProperties", "maxProperties", "minItems", "maxItems"},
    {"minLength", "maxLength", "pattern", "format"},
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
)
"""Every keyword of JSON Schema 2020-12 that is enforced or needs no enforcing."""

_MERGING = frozenset({"anyOf", "oneOf", "allOf", "$ref"})

_PYTHON = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}

MAX_DEPTH: Final = 8
"""Deepest nesting of schemas that is read; each $ref counts as one level."""

MAX_SCHEMAS: Final = 1_000
"""Most sub-schemas that are read for one value. If there are more, every type is allowed."""

MAX_VALUES: Final = 1_000
"""Most values of an `enum` that are read."""

MAX_REFERENCE_CHARACTERS: Final = 1_000
"""Most characters of a $ref; a longer one is not followed."""

_ALL: Final = frozenset(KINDS)


class ParameterTypes:
    """The JSON types that values of a schema's parts may have; all types if the schema does not say.

    The schema comes from the client. Each part is read once, however many references lead to it.

    Args:
        root: the schema, to which its references point.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        # Keyed by identity: the parts of a schema are not hashable, and live as long as it does.
        self._found: dict[int, frozenset[str]] = {}
        self._left = 0

    def of_property(self, name: str) -> frozenset[str]:
        """The possible types of an object's property `name`; a property that is not in the schema may have any type."""
        properties = self._root.get("properties")
        return self.of(properties.get(name)) if isinstance(properties, dict) else _ALL

    def of(self, schema: Any) -> frozenset[str]:
        """The possible types of a value of `schema`, which is a part of the root."""
        self._left = MAX_SCHEMAS
        return self._find(schema, 0)

    def _find(self, schema: Any, depth: int) -> frozenset[str]:
        if not isinstance(schema, dict):
            return _ALL
        known = self._found.get(id(schema))
        if known is not None or depth > MAX_DEPTH or self._left <= 0:
            return known or _ALL
        self._left -= 1
        # If a recursive schema is reached again, it adds no restriction.
        self._found[id(schema)] = _ALL
        types = self._found[id(schema)] = self._read(schema, depth + 1)
        return types

    def _read(self, schema: dict[str, Any], depth: int) -> frozenset[str]:
        types = _named(schema)
        for alternative in ("anyOf", "oneOf"):
            inner = schema.get(alternative)
            if isinstance(inner, list) and 0 < len(inner) <= MAX_SCHEMAS:
                types &= frozenset[str]().union(*[self._find(each, depth) for each in inner])
        several = schema.get("allOf")
        for each in several[:MAX_SCHEMAS] if isinstance(several, list) else ():
            types &= self._find(each, depth)
        if "$ref" in schema:
            types &= self._find(follow(schema["$ref"], self._root), depth)
        return types or _ALL


def _named(schema: dict[str, Any]) -> frozenset[str]:
    kinds = schema.get("type")
    types = _ALL & frozenset(each for each in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(each, str))
    values = schema.get("enum") if "const" not in schema else [schema["const"]]
    if isinstance(values, list) and len(values) <= MAX_VALUES:
        # One value of each type is enough.
        samples = {type(value): value for value in values}.values()
        types = (types or _ALL) & frozenset(kind for kind in KINDS for value in samples if fits(value, kind))
    return types or _ALL


def follow(reference: object, root: Mapping[str, Any]) -> Any:
    """The target of a reference within `root`; True if there is none, or it is too long."""
    if not isinstance(reference, str) or not reference.startswith("#/") or len(reference) > MAX_REFERENCE_CHARACTERS:
        return True
    found: Any = root
    for step in reference[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~"), True) if isinstance(found, dict) else True
    return found


def merges(schema: dict[str, Any]) -> bool:
    """Whether a value must satisfy several schemas at once."""
    words = schema.keys() - ANNOTATIONS
    several = schema.get("allOf")
    return bool(words & _MERGING and len(words) > 1) or (isinstance(several, list) and len(several) > 1)


def fits(value: object, kind: object) -> bool:
    """Whether `value` is of the JSON type `kind`."""
    if kind == "number":
        # A bool is an int in Python, and no number in JSON.
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(kind, str) and isinstance(value, _PYTHON.get(kind, ()))
