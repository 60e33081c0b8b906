"""Presence -> log: the flows that nobody serves although the gateway's file counts on other processes for them."""

from collections.abc import Iterable
from typing import Any

import structlog

from tg_base.client import Requestor
from tg_base.config import Config
from tg_base.protocol import Route

log = structlog.get_logger()

KNOWING_SECONDS = 3.0
"""Seconds within which the processors of a bus have announced themselves to a new gateway."""


async def warn_of_unserved(requestor: Requestor, routes: Iterable[Route[Any, Any]], config: Config) -> None:
    """Log which of these services of flows no processor of the bus serves: the file cannot tell.

    Args:
        requestor: hears the processors.
        routes: the services; plain peers announce nothing, so those are left out.
        config: has their places in the file.
    """
    asked = [route for route in routes if not route.plain]
    await requestor.presence.until_served([route.request for route in asked if route.plan is None], KNOWING_SECONDS)
    for route in asked:
        if not requestor.routes.is_served(route):
            place = config.where("flows", route.flow, route.spec.name)
            log.warning("flow.unserved", flow=route.flow, service=route.spec.name, model=route.model, at=place)
