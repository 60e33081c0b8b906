"""What the doors count, beside `tg_base.telemetry.metrics`; and the page that shows all of it."""

import asyncio
from collections.abc import Iterable
from functools import cache
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

REQUESTS = Counter("tg_gateway_requests_total", "Requests ended, by door and outcome", ["door", "service", "outcome"])
# The client library takes a lock to find a counter, which costs more than to count.
find_request_counter = cache(REQUESTS.labels)
SOCKETS = Gauge("tg_gateway_sockets", "WebSockets open now")
STREAMING = Gauge("tg_gateway_streams", "Requests relayed now")
UNAUTHENTICATED_REFUSED = Counter(
    "tg_gateway_unauthenticated_refused_total", "Connections over their address's limit", []
)
MALFORMED = Counter("tg_gateway_malformed_total", "Connections whose bytes were no request, or that broke in one", [])
AUTH_FAILURES = Counter("tg_gateway_auth_failures_total", "Requests with a wrong token, or none", [])

MAX_QUICK_SAMPLES: Final = 2_500
"""Samples of a metric that are written on the event loop, in some ten milliseconds. The distributions of a pool with
1,000 adapters have 15,000 each, and all of them together took seconds, in which no server was picked."""


class _Family(Collector):
    """One metric, as it was read."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    @override
    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


async def render_metrics() -> bytes:
    """All metrics of this process. They are read on the event loop; what is long is written in a thread."""
    parts: list[bytes] = []
    for metric in REGISTRY.collect():
        family = _Family(metric)
        if len(metric.samples) <= MAX_QUICK_SAMPLES:
            parts.append(generate_latest(family))
        else:
            parts.append(await asyncio.to_thread(generate_latest, family))
    return b"".join(parts)


async def show_metrics(request: web.Request) -> web.StreamResponse:
    """All metrics of this process, in the format that Prometheus asks for."""
    return web.Response(body=await render_metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})
