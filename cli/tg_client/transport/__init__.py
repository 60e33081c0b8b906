"""Flow -> gateway: the transports (HTTP, WebSocket), their errors and their timeouts."""

from tg_client.transport.address import DEFAULT_URL, Address, bearer_token, find_url
from tg_client.transport.base import Transport
from tg_client.transport.deadline import WAIT_LONGER, Deadline
from tg_client.transport.http import HttpTransport
from tg_client.transport.http_connection import HttpConnections, HttpResponse
from tg_client.transport.lmtp import LmtpItem, LmtpSocket, open_lmtp
from tg_client.transport.position import Position
from tg_client.transport.records import bytes_of
from tg_client.transport.retries import OnRetry, Retries
from tg_client.transport.websocket import WebSocketTransport, open_socket

__all__ = [
    "DEFAULT_URL",
    "WAIT_LONGER",
    "Address",
    "Deadline",
    "HttpConnections",
    "HttpResponse",
    "HttpTransport",
    "LmtpItem",
    "LmtpSocket",
    "OnRetry",
    "Position",
    "Retries",
    "Transport",
    "WebSocketTransport",
    "bearer_token",
    "bytes_of",
    "find_url",
    "open_lmtp",
    "open_socket",
]
