"""A tool's schema -> which types the values of its parameters may have, for calls whose text does not say it."""

from collections.abc import Mapping
from typing import Any, Final

from tg_flow.llama.schema_keywords import KINDS, fits

MAX_REFERENCES: Final = 8
"""Of a $ref that leads to a $ref."""

_ALL: Final = frozenset(KINDS)


def find_property(schema: Mapping[str, Any], name: str) -> Any:
    """The schema of the property `name` of an object, or True, which allows anything, if it names none."""
    properties = schema.get("properties")
    return properties.get(name, True) if isinstance(properties, dict) else True


def find_types(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The JSON types that a value of `schema` may have; all of them where it does not say so.

    Args:
        schema: of the value.
        root: the schema that it is a part of, to which its references point.
        depth: how many schemas are around it.
    """
    if not isinstance(schema, dict) or depth > MAX_REFERENCES:
        return _ALL
    types = _named(schema)
    for alternative in ("anyOf", "oneOf"):
        inner = schema.get(alternative)
        if isinstance(inner, list) and inner:
            types &= frozenset().union(*[find_types(each, root, depth + 1) for each in inner])
    for each in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        types &= find_types(each, root, depth + 1)
    if "$ref" in schema:
        types &= find_types(_follow(schema["$ref"], root), root, depth + 1)
    return types or _ALL


def _named(schema: dict[str, Any]) -> frozenset[str]:
    kinds = schema.get("type")
    types = _ALL & frozenset(each for each in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(each, str))
    values = schema.get("enum") if "const" not in schema else [schema["const"]]
    if isinstance(values, list):
        types = (types or _ALL) & frozenset(kind for kind in KINDS for value in values if fits(value, kind))
    return types or _ALL


def _follow(reference: object, root: Mapping[str, Any]) -> Any:
    """What a reference within `root` points to; True if that is nothing."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return True
    found: Any = root
    for step in reference[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~"), True) if isinstance(found, dict) else True
    return found
