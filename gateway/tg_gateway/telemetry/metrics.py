"""What the doors count, beside `tg_base.telemetry.metrics`; and the page that shows all of it."""

from functools import cache

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, generate_latest

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


async def show_metrics(request: web.Request) -> web.StreamResponse:
    """All metrics of this process, in the format that Prometheus asks for."""
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
