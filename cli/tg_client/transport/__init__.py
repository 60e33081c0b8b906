"""Flow -> gateway: the ways there (HTTP, WebSocket), their errors and their deadlines."""

from tg_client.transport.address import DEFAULT_URL, Address, bearer_token, named_url
from tg_client.transport.base import Door
from tg_client.transport.http import RestDoor
from tg_client.transport.websocket import SocketDoor, open_socket

__all__ = [
    "DEFAULT_URL",
    "Address",
    "Door",
    "RestDoor",
    "SocketDoor",
    "bearer_token",
    "named_url",
    "open_socket",
]
