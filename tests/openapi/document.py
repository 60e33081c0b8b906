"""The document of all mounts, its operations, its examples, and JSON that is held against its schemas."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import jsonschema_rs
import msgspec

from tg_gateway.mounts import load_mounts
from tg_gateway.openapi import list_rows, make_document
from tg_schema import encode

MOUNTS = load_mounts()
JSON: Final = "application/json"
DOCUMENT: Final[dict[str, Any]] = msgspec.json.decode(encode(make_document(list_rows(MOUNTS))))
"""As a gateway tells it, without the gateway's own paths."""
_ROOT: Final = "urn:document"
_REGISTRY: Final = jsonschema_rs.Registry([(_ROOT, DOCUMENT)])


class Operation(NamedTuple):
    """One operation.

    Attributes:
        method: in capitals.
        template: its path, with variables.
        path: its path, with the example of each variable.
        described: the operation object.
    """

    method: str
    template: str
    path: str
    described: dict[str, Any]

    @property
    def examples(self) -> dict[str, dict[str, Any]]:
        """Its bodies, by name."""
        body = self.described.get("requestBody", {"content": {JSON: {"examples": {}}}})
        return {name: example["value"] for name, example in body["content"][JSON]["examples"].items()}

    def find_errors(self, body: object, *place: str) -> list[str]:
        """How JSON differs from the schema at a place of the operation object."""
        steps = ("paths", self.template, self.method.lower(), *place)
        pointer = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
        schema = {"$ref": f"{_ROOT}#{pointer.replace('{', '%7B').replace('}', '%7D')}"}
        validator = jsonschema_rs.Draft202012Validator(schema, registry=_REGISTRY)
        return [error.message for error in validator.iter_errors(body)]


def _list_operations() -> Iterator[Operation]:
    for template, item in DOCUMENT["paths"].items():
        for method, described in item.items():
            path = template
            for parameter in described["parameters"]:
                if parameter["in"] == "path":
                    path = path.replace(f"{{{parameter['name']}}}", parameter["examples"]["example1"]["value"])
            yield Operation(method.upper(), template, path.lstrip("/"), described)


OPERATIONS: Final = tuple(_list_operations())
"""All of them."""
