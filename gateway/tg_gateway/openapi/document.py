"""The table of mounts -> the OpenAPI document of the gateway."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

from tg_gateway.openapi.operation import make_operation
from tg_gateway.openapi.row import Row, list_types
from tg_gateway.openapi.schemas import Schemas

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
_HEADERS: Final = {
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
        "components": {"schemas": schemas.components, "securitySchemes": _SECURITY, "headers": _HEADERS},
    }
