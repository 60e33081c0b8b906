"""JSON schema keywords: which ones a grammar can enforce, and to which types they apply."""

from typing import Any

KINDS = ("object", "array", "string", "number", "integer", "boolean", "null")

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"$schema", "$id", "$comment", "$defs", "definitions", "contentMediaType", "contentEncoding"}
)
"""Keywords without an effect on validity; `default` and `examples` may hold anything."""

_PYTHON = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}

_BY_KIND = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "format"}),
}

KNOWN = ANNOTATIONS.union({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}, *_BY_KIND.values())
"""Every keyword of JSON Schema 2020-12 that is enforced or needs no enforcing."""


def without(schema: dict[str, Any], words: frozenset[str]) -> dict[str, Any]:
    """`schema` without the keywords `words`."""
    return {word: value for word, value in schema.items() if word not in words}


def kinds_of(schema: object) -> tuple[str, ...]:
    """The types that a value of `schema` may have according to its own keywords; all if they do not say."""
    if not isinstance(schema, dict):
        return KINDS
    kind = schema.get("type")
    if isinstance(kind, str) and kind in KINDS:
        return (kind,)
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return tuple(kind for kind in KINDS if any(fits(value, kind) for value in values))
    meant = tuple(kind for kind, words in _BY_KIND.items() if not words.isdisjoint(schema))
    return meant or KINDS


def fits(value: object, kind: object) -> bool:
    """Whether `value` is of the JSON type `kind`."""
    if kind == "number":
        # A bool is an int in Python, and no number in JSON.
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(kind, str) and isinstance(value, _PYTHON.get(kind, ()))
