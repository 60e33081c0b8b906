"""URL or envelope -> service: which flow's which service a request means."""

from dataclasses import dataclass
from typing import Any

from tg_base.protocol import Route
from tg_base.telemetry import CHUNK_GAP_SECONDS, FIRST_TOKEN_SECONDS, OVERHEAD_SECONDS, Cells
from tg_gateway.dialects import Dialect, find_dialect
from tg_schema.errors import NotFound

DEFAULT_FLOW = "default"
"""The flow of a request that names none (seed)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One service of one flow, in one dialect, with the clocks that watch it."""

    route: Route[Any, Any]
    dialect: Dialect[Any, Any]
    first_token: Cells
    gap: Cells
    overhead: Cells


class Endpoints:
    """All that can be asked for.

    Args:
        routes: every service of every flow.
    """

    def __init__(self, routes: tuple[Route[Any, Any], ...]) -> None:
        self.routes = routes
        self._endpoints = {(route.flow, route.spec.name): _endpoint(route) for route in routes}

    @property
    def flows(self) -> tuple[str, ...]:
        """The flows' ids, in order."""
        return tuple(dict.fromkeys(flow for flow, _ in self._endpoints))

    def find(self, flow: str, service: str) -> Endpoint:
        """The endpoint of a flow's service.

        Raises:
            NotFound: no such flow, or the flow has no such service; the message lists what there is.
        """
        endpoint = self._endpoints.get((flow, service))
        if endpoint is not None:
            return endpoint
        if flow not in self.flows:
            raise NotFound(f"no flow has this id; there are: {', '.join(self.flows) or 'none'}")
        services = ", ".join(service for known, service in self._endpoints if known == flow)
        raise NotFound(f"this flow has no service of that name; it has: {services}")


def _endpoint(route: Route[Any, Any]) -> Endpoint:
    name = route.spec.name
    return Endpoint(
        route,
        find_dialect(route.spec),
        FIRST_TOKEN_SECONDS.labels(name),
        CHUNK_GAP_SECONDS.labels(name),
        OVERHEAD_SECONDS.labels(name),
    )
