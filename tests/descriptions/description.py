"""A published OpenAPI description, and JSON that is held against it."""

from typing import Any, Final

import jsonschema_rs

_ROOT: Final = "urn:description"


class Description:
    """One description.

    Args:
        document: as it is published.
        stream: the JSON pointer to the union of a response's events.
    """

    def __init__(self, document: dict[str, Any], stream: str) -> None:
        self._registry = jsonschema_rs.Registry([(_ROOT, _allow_null(document))])
        self._validators: dict[str, jsonschema_rs.Draft202012Validator] = {}
        union = _find(document, stream)
        pointers = [each["$ref"].removeprefix("#") for each in union.get("anyOf") or union["oneOf"]]
        self._events = {_find(document, each)["properties"]["type"]["enum"][0]: each for each in pointers}

    def check(self, name: str, body: object) -> None:
        """See that a body is what the schema of this name says.

        Raises:
            AssertionError: it is not; every difference is told with its place.
        """
        self._check(f"/components/schemas/{name}", body)

    def check_event(self, event: dict[str, Any]) -> None:
        """The same for an event of a response's stream, by its type."""
        assert event["type"] in self._events, f"no event is described that has the type {event['type']}"
        self._check(self._events[event["type"]], event)

    def _check(self, pointer: str, body: object) -> None:
        if pointer not in self._validators:
            schema = {"$ref": f"{_ROOT}#{pointer}"}
            self._validators[pointer] = jsonschema_rs.Draft202012Validator(
                schema, registry=self._registry, offline=True
            )
        wrong = [
            f"{'.'.join(map(str, error.instance_path))}: {error.message}"
            for error in self._validators[pointer].iter_errors(body)
        ]
        assert not wrong, "\n".join([f"this is no {pointer.rpartition('/')[2]}:", *wrong])


def _find(document: dict[str, Any], pointer: str) -> dict[str, Any]:
    found: Any = document
    for step in pointer.strip("/").split("/"):
        found = found[step.replace("~1", "/")]
    return dict(found)


def _allow_null(schema: Any) -> Any:
    """The same without `nullable`, a word of OpenAPI 3.0 that OpenAI's description still has, and JSON Schema not."""
    if isinstance(schema, list):
        return [_allow_null(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    told = {name: _allow_null(each) for name, each in schema.items()}
    if told.get("nullable") is not True:
        return told
    del told["nullable"]
    return {"anyOf": [told, {"type": "null"}]}
