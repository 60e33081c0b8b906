"""HTTP -> relay -> HTTP: the router of mounts, middleware, handlers, streaming bodies, probes."""

from tg_gateway.http.handlers import HttpHandlers
from tg_gateway.http.health import Alive, Health, Ready, answer_health, make_ready
from tg_gateway.http.keeping import UNMADE, plan_apart
from tg_gateway.http.load_headers import make_load_headers
from tg_gateway.http.middleware import DOOR, ENTRY, PRINCIPAL, Handler, Middleware, Router, defer_expectation
from tg_gateway.http.page import Page, find_pages
from tg_gateway.http.unreadable_head import (
    MAX_HEAD_LINE_BYTES,
    MAX_HEADERS,
    MAX_PATH_BYTES,
    UnreadableHead,
    begins_request,
)

__all__ = [
    "DOOR", "ENTRY", "MAX_HEADERS", "MAX_HEAD_LINE_BYTES", "MAX_PATH_BYTES", "PRINCIPAL", "UNMADE", "Alive", "Handler",
    "Health", "HttpHandlers", "Middleware", "Page", "Ready", "Router", "UnreadableHead", "answer_health",
    "begins_request", "defer_expectation", "find_pages", "make_load_headers", "make_ready", "plan_apart",
]  # fmt: skip
