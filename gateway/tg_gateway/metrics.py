"""What the doors count, beside `tg_base.metrics`; and the page that shows all of it."""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, generate_latest

REQUESTS = Counter("tg_gateway_requests_total", "Requests ended, by door and outcome", ["door", "service", "outcome"])
SOCKETS = Gauge("tg_gateway_sockets", "WebSockets open now")
STREAMING = Gauge("tg_gateway_streams", "Requests relayed now")
AUTH_FAILURES = Counter("tg_gateway_auth_failures_total", "Requests with a wrong token, or none", [])


async def show_metrics(request: web.Request) -> web.StreamResponse:
    """All metrics of this process, in the format that Prometheus asks for."""
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
