"""What exists, read only: the models that can be asked, and the flows in TrustGraph's terms.

Field names of flows have hyphens, and a flow travels as JSON text (TrustGraph's flow and config services): enough for
its `tg-show-flows`.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tg_gateway.dialects import Catalogue
from tg_schema import decode, encode
from tg_schema.errors import BadRequest, NotFound
from tg_schema.served_model import ServedModels


class _Request(msgspec.Struct, frozen=True, rename="kebab"):
    operation: str | None = None
    flow_id: str | None = None


_NO_FLOW: Final[Mapping[str, Any]] = {
    "blueprint-names": (),
    "flow-ids": (),
    "blueprint-definition": "",
    "flow": "",
    "description": "",
    "parameters": {},
}
"""The fields of every answer about flows, with the values that say nothing."""
_NO_CONFIG: Final = b'{"version":0,"values":[],"directory":[],"config":{}}'
MODELS: Final = "models"
"""The service that lists the models."""
FLOW_SERVICES: Final = frozenset({"flow", "config", MODELS})
"""The global services, which belong to no flow."""


def list_models(catalogue: Catalogue) -> bytes:
    """The JSON of the models that can be asked now."""
    return encode(ServedModels(catalogue.served_models()))


def answer_flow_service(catalogue: Catalogue, service: str, body: bytes) -> bytes:
    """The whole answer's JSON.

    Raises:
        BadRequest: the operation is not one of those that only read.
        NotFound: no such flow.
    """
    asked = decode(_Request, body)
    if service == MODELS:
        return list_models(catalogue)
    if service == "config" and asked.operation in {"list", "get", "config"}:
        return _NO_CONFIG
    if service == "flow" and asked.operation == "list-flows":
        return encode({**_NO_FLOW, "flow-ids": catalogue.flows})
    if service == "flow" and asked.operation == "get-flow":
        return encode(_describe_flow(catalogue, asked.flow_id or ""))
    raise BadRequest("operation is missing or unknown: flow has list-flows and get-flow, config has list and get")


def _describe_flow(catalogue: Catalogue, flow: str) -> Mapping[str, Any]:
    routes = [route for route in catalogue.routes if route.flow == flow]
    if not routes:
        raise NotFound("no flow has this id; list-flows lists all")
    interfaces = {route.spec.name: {"request": route.request, "response": route.response} for route in routes}
    told = {"description": flow, "interfaces": interfaces, "blueprint-name": "", "parameters": {}}
    return {**_NO_FLOW, "flow": encode(told).decode(), "description": flow}
