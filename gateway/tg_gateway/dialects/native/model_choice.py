"""A completion's `model` -> the flow that is asked, and the model's own name there."""

from typing import Any

import msgspec

from tg_base.protocol import Route
from tg_gateway.dialects import Catalogue
from tg_schema import TextCompletionRequest
from tg_schema.errors import NotFound


def choose_model(
    catalogue: Catalogue, flow: str | None, route: Route[Any, Any], request: Any
) -> tuple[Route[Any, Any], Any]:
    """The route to ask and the request, whose model has its own name in place of an alias.

    A model that the catalogue does not know goes to `route` as it is: the processors of a plain peer announce none.

    Args:
        catalogue: all that can be asked for.
        flow: the one that the client named; None = that of the model.
        route: the service of that flow, or of the default one.
        request: of any service; only a text completion has a model.
    """
    if not isinstance(request, TextCompletionRequest) or not request.model:
        return route, request
    try:
        found = catalogue.find_model(request.model, flow or catalogue.default_flow)
    except NotFound:
        return route, request
    if flow is not None and found.route.flow != flow:
        return route, request
    return found.route, msgspec.structs.replace(request, model=found.model, adapter=found.adapter or request.adapter)
