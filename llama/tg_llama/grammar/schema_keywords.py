"""JSON schema keywords: which ones a grammar can enforce, and to which types they apply."""

from typing import Any

KINDS = ("object", "array", "string", "number", "integer", "boolean", "null")

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"$schema", "$id", "$comment", "$defs", "definitions", "contentMediaType", "contentEncoding"}
)
"""Keywords without an effect on validity; `default` and `examples` may hold anything."""

MAPS_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
LISTS_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SCHEMAS = frozenset({"items", "additionalProperties"})
"""Keywords whose values have sub-schemas: by name, in a list, or are one."""

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
