"""Types of requests and answers -> the schemas of the OpenAPI document, each struct once, under its name."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

REFERENCE: Final = "#/components/schemas/{name}"


class Schemas:
    """The schemas of all types that the document uses.

    Args:
        types: each may be a tuple of types, which is any of them.
    """

    def __init__(self, types: Sequence[Any]) -> None:
        single = [each for kind in types for each in _spread(kind)]
        # Types such as tuple[int, ...] are not the same object twice, and need not be hashable.
        schemas, self.components = msgspec.json.schema_components(single, ref_template=REFERENCE)
        self._made = list(zip(single, schemas, strict=True))

    def of(self, kinds: Sequence[Any]) -> dict[str, Any]:
        """The schema of a type, or of any of several."""
        singles = [each for kind in kinds for each in _spread(kind)]
        found: list[dict[str, Any]] = []
        for single in singles:
            schema = next(schema for kind, schema in self._made if kind == single)
            if schema not in found:
                found.append(schema)
        return found[0] if len(found) == 1 else {"anyOf": found}

    def of_fields(self, struct: Any) -> tuple[dict[str, Any], frozenset[str]]:
        """The schemas of a struct's fields by their names, and which are required."""
        name = self.of([struct])["$ref"].rpartition("/")[2]
        component = self.components[name]
        return component["properties"], frozenset(component.get("required", ()))


def _spread(kind: Any) -> tuple[Any, ...]:
    return kind if isinstance(kind, tuple) else (kind,)
