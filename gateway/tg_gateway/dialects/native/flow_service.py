"""What exists, read only: the models that can be asked, and the flows in TrustGraph's terms.

Field names of flows have hyphens, and a flow travels as JSON text (TrustGraph's flow and config services): enough for
its `tg-show-flows`.
"""

from typing import Any, Final

import msgspec

from tg_gateway.dialects import Catalogue
from tg_schema import decode, encode
from tg_schema.errors import BadRequest, NotFound
from tg_schema.served_model import ServedModels


class _Request(msgspec.Struct, frozen=True, rename="kebab"):
    operation: str | None = None
    flow_id: str | None = None


class _FlowResponse(msgspec.Struct, frozen=True, rename="kebab"):
    blueprint_names: tuple[str, ...] = ()
    flow_ids: tuple[str, ...] = ()
    blueprint_definition: str = ""
    flow: str = ""
    description: str = ""
    parameters: dict[str, Any] = {}


class _ConfigResponse(msgspec.Struct, frozen=True):
    version: int = 0
    values: tuple[Any, ...] = ()
    directory: tuple[str, ...] = ()
    config: dict[str, Any] = {}


class _Interface(msgspec.Struct, frozen=True):
    request: str
    response: str


class _Flow(msgspec.Struct, frozen=True, rename="kebab"):
    description: str
    interfaces: dict[str, _Interface]
    blueprint_name: str = ""
    parameters: dict[str, Any] = {}


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
        return encode(_ConfigResponse())
    if service == "flow" and asked.operation == "list-flows":
        return encode(_FlowResponse(flow_ids=catalogue.flows))
    if service == "flow" and asked.operation == "get-flow":
        return encode(_describe_flow(catalogue, asked.flow_id or ""))
    raise BadRequest("operation is missing or unknown: flow has list-flows and get-flow, config has list and get")


def _describe_flow(catalogue: Catalogue, flow: str) -> _FlowResponse:
    routes = [route for route in catalogue.routes if route.flow == flow]
    if not routes:
        raise NotFound("no flow has this id; list-flows lists all")
    interfaces = {route.spec.name: _Interface(route.request, route.response) for route in routes}
    return _FlowResponse(flow=encode(_Flow(flow, interfaces)).decode(), description=flow)
