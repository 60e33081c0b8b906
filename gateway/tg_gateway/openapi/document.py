"""The table of mounts -> the OpenAPI document of the gateway, an operation for each method and path."""

import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

import msgspec

from tg_gateway.dialects import EVENTS, IDEMPOTENCY_HEADER, KEEP_HEADER, Description, IdempotencyKey
from tg_gateway.openapi.row import Row, list_refusals, list_types

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


_JSON: Final = "application/json"
_VARIABLE: Final = re.compile(r"{(\w+)}")
_OWN_PHRASES: Final = {529: "Overloaded"}
"""Phrases of statuses that HTTP does not define."""
_HEADERS: Final = {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}


def make_operation(rows: Sequence[Row], schemas: Schemas) -> dict[str, Any]:
    """The operation object of rows that have their method and path in common."""
    mount = rows[0].mount
    descriptions = [each for row in rows for each in row.descriptions]
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{mount.method.lower()}{mount.path}").rstrip("_"),
        "tags": list(dict.fromkeys(each.group for each in descriptions)),
        "summary": "; ".join(dict.fromkeys(each.summary for each in descriptions)),
        "parameters": [*_list_path(rows, mount.path), *_list_headers(rows), *_list_query(descriptions, schemas)],
        "responses": _make_responses(rows, descriptions, schemas),
    }
    if any(each.body is not None for each in descriptions):
        operation["requestBody"] = _make_body(descriptions, schemas)
    messages = {name: schemas.of([kind]) for each in descriptions for name, kind in each.messages.items()}
    if messages:
        # OpenAPI itself cannot describe the messages of a WebSocket.
        operation["x-messages"] = messages
    if all(row.mount.keyless for row in rows):
        operation["security"] = []
    return operation


def _list_path(rows: Sequence[Row], path: str) -> Iterator[dict[str, Any]]:
    for name in _VARIABLE.findall(path):
        parameter = {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        values = [each.path[name] for row in rows for each in row.descriptions if name in each.path]
        examples = {f"example{number}": {"value": value} for number, value in enumerate(dict.fromkeys(values), 1)}
        yield parameter | ({"examples": examples} if examples else {})


def _list_headers(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The headers that distinguish the rows, and those by which answers are kept."""
    if any(row.asks for row in rows):
        yield from ({"name": name, "in": "header"} | each for name, each in _KEEPING_HEADERS.items())
    for name in dict.fromkeys(row.mount.header for row in rows if row.mount.header):
        yield {
            "name": name,
            "in": "header",
            "required": all(row.mount.header == name for row in rows),
            "schema": {"type": "string"},
            "description": "with it the answer has the shape of the protocol whose clients send it",
        }


def _list_query(descriptions: Sequence[Description], schemas: Schemas) -> Iterator[dict[str, Any]]:
    for description in descriptions:
        if description.query is None:
            continue
        fields, required = schemas.of_fields(description.query)
        for name, schema in fields.items():
            yield {"name": name, "in": "query", "required": name in required, "schema": schema}


def _make_body(descriptions: Sequence[Description], schemas: Schemas) -> dict[str, Any]:
    asked: list[dict[str, Any]] = []
    for description in descriptions:
        schema = schemas.of([description.body])
        if description.required:
            schema = {"allOf": [schema, {"required": list(description.required)}]}
        asked.append(schema)
    content: dict[str, Any] = {"schema": asked[0] if len(asked) == 1 else {"anyOf": asked}}
    examples = [(name, value) for each in descriptions for name, value in each.examples.items()]
    numbered = {f"{name}-{number}" if number else name: value for number, name, value in _number(examples)}
    content["examples"] = {name: {"value": value} for name, value in numbered.items()}
    return {"required": True, "content": {_JSON: content}}


def _number(examples: Sequence[tuple[str, Any]]) -> Iterator[tuple[int, str, Any]]:
    """Each example with its name, and how many examples of this name come before."""
    for place, (name, value) in enumerate(examples):
        yield sum(other == name for other, _ in examples[:place]), name, value


def _make_responses(rows: Sequence[Row], descriptions: Sequence[Description], schemas: Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if any(row.mount.socket for row in rows):
        responses["101"] = {"description": "a WebSocket"}
    answered = [each for row in rows if not row.mount.socket for each in row.descriptions if 200 in each.statuses]
    if answered:
        responses["200"] = _make_answer(answered, schemas)
    failure = {_JSON: {"schema": schemas.of([each.failure for each in descriptions])}}
    further = (each.statuses for each in descriptions)
    for status in sorted(frozenset().union(*map(list_refusals, rows), *further) - {200}):
        phrase = _OWN_PHRASES.get(status) or HTTPStatus(status).phrase
        responses[str(status)] = {"description": phrase, "headers": _HEADERS, "content": failure}
    return responses


def _make_answer(descriptions: Sequence[Description], schemas: Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for media in dict.fromkeys(each.media for each in descriptions if each.answer is not None):
        kinds = [each.answer for each in descriptions if each.media == media and each.answer is not None]
        content[media] = {"schema": schemas.of(kinds)}
    for media in dict.fromkeys(each.events for each in descriptions if each.events):
        content[media] = _make_events(media, [each for each in descriptions if each.events == media], schemas)
    for media, kind in ((media, kind) for each in descriptions for media, kind in each.further.items()):
        content[media] = {} if kind is None else {"x-itemSchema": schemas.of([kind])}
    answer: dict[str, Any] = {"description": "the answer", "headers": _HEADERS}
    return answer | ({"content": content} if content else {})


def _make_events(media: str, descriptions: Sequence[Description], schemas: Schemas) -> dict[str, Any]:
    kinds = [each.event for each in descriptions if each.event is not None]
    if not kinds:
        return {}
    if media != EVENTS:
        return {"x-itemSchema": schemas.of(kinds)}
    # OpenAPI 3.2 has a keyword for streams; before it, the schema of a stream is taken for that of one event.
    json = {"type": "string", "contentMediaType": _JSON, "contentSchema": schemas.of(kinds)}
    done = [{"const": each.done} for each in descriptions if each.done]
    data = {"anyOf": [*done, json]} if done else json
    properties = {"data": data, "event": {"type": "string"}}
    return {"schema": {"type": "object", "properties": properties, "required": ["data"]}}


OPENAPI_VERSION: Final = "3.1.1"
_DESCRIPTION: Final = (
    "Every door of the gateway. A body is read as JSON whatever its content type says; fields that are not described "
    "are ignored, or refused by a sentence. `model` names a model of `GET /api/v1/models`."
)
_SECURITY: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "api-key": {"type": "apiKey", "in": "header", "name": "api-key"},
}
_KEEPING_HEADERS: Final = {
    IDEMPOTENCY_HEADER: {
        "description": "requests with one key of one API key are made once, and all get the answer; a request with "
        "another body is refused (409); ignored where nothing is generated",
        "schema": {"type": "string", "minLength": 1, "maxLength": IdempotencyKey.MAX_CHARACTERS},
    },
    KEEP_HEADER: {
        "description": "for how long the stream is kept, to be read on at `/v1/streams/{stream}`, or the answer to "
        "requests that are sent again; a stream that cannot be kept is refused (400)",
        "schema": {"type": "string", "pattern": "^[0-9]{1,6}[smh]$"},
        "example": "10m",
    },
}
_SHARED_HEADERS: Final = {
    "X-Request-Id": {
        "description": "the request's own, or the gateway's; it is in the log",
        "schema": {"type": "string"},
    }
}


def make_document(rows: Sequence[Row]) -> dict[str, Any]:
    """The document. A gateway without keys takes requests without one."""
    schemas = Schemas(list(list_types(rows)))
    paths: dict[str, dict[str, Any]] = {}
    for method, path in dict.fromkeys((row.mount.method, row.mount.path) for row in rows):
        sharing = [row for row in rows if (row.mount.method, row.mount.path) == (method, path)]
        paths.setdefault(path, {})[method.lower()] = make_operation(sharing, schemas)
    groups = dict.fromkeys(each.group for row in rows for each in row.descriptions)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "Tokengrid", "version": version("tokengrid-gateway"), "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [*({name: []} for name in _SECURITY), {}],
        "tags": [{"name": group} for group in groups],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _SECURITY, "headers": _SHARED_HEADERS},
    }
