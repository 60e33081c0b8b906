"""HTTP -> relay -> HTTP: middleware, handlers, streams of events, probes."""

from tg_gateway.http.handlers import HttpDoor
from tg_gateway.http.health import Health
from tg_gateway.http.middleware import LINE, Entrance

__all__ = [
    "LINE",
    "Entrance",
    "Health",
    "HttpDoor",
]
