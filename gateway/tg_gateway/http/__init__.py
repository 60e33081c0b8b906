"""HTTP -> relay -> HTTP: middleware, handlers, streams of events, probes."""

from tg_gateway.http.handlers import HttpHandlers
from tg_gateway.http.health import Health
from tg_gateway.http.middleware import ENTRY, Middleware

__all__ = [
    "ENTRY",
    "Health",
    "HttpHandlers",
    "Middleware",
]
