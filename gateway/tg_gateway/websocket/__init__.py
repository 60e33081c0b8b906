"""WebSocket -> relay -> WebSocket: many streams on one socket."""

from tg_gateway.websocket.flow_service import FlowService
from tg_gateway.websocket.handler import WebSocketHandler
from tg_gateway.websocket.session import Backend

__all__ = [
    "Backend",
    "FlowService",
    "WebSocketHandler",
]
