"""WebSocket -> relay -> WebSocket: many streams on one socket, in the protocol of its mount."""

from tg_gateway.websocket.handler import WebSocketHandler
from tg_gateway.websocket.session import Backend

__all__ = [
    "Backend",
    "WebSocketHandler",
]
