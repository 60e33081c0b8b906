"""A client of the WebSocket: its envelopes, and its frames byte by byte."""

import json
from typing import Any

from aiohttp import ClientWebSocketResponse, WSMsgType

from tests.flow.raw_http import RawConnection

PATH = "/api/v1/socket"
Frame = dict[str, Any]


def ask(name: object, words: int | str, service: str = "text-completion", **more: Any) -> Frame:
    return {"id": name, "service": service, "flow": "default", "request": {"prompt": str(words), **more}}


async def frame(socket: ClientWebSocketResponse) -> Frame:
    message = await socket.receive(timeout=5)
    assert message.type is WSMsgType.TEXT, message
    return dict(json.loads(message.data))


async def answer(socket: ClientWebSocketResponse, request: Frame | bytes | str) -> Frame:
    """The first frame that comes after a request."""
    if isinstance(request, bytes):
        await socket.send_bytes(request)
    else:
        await socket.send_str(request if isinstance(request, str) else json.dumps(request))
    return await frame(socket)


async def whole(socket: ClientWebSocketResponse, first: Frame | None = None) -> list[Frame]:
    frames = [first or await frame(socket)]
    while not frames[-1]["complete"]:
        frames.append(await frame(socket))
    return frames


async def upgrade(raw: RawConnection, headers: str = "", path: str = PATH, method: str = "GET") -> bytes:
    raw.send(
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n".encode()
    )
    return await raw.until(b"\r\n\r\n")


def masked(payload: bytes, first: int = 0x81) -> bytes:
    """A client's frame with the mask 0."""
    size = len(payload)
    if size < 126:
        return bytes([first, 0x80 | size]) + bytes(4) + payload
    return bytes([first, 0x80 | 126]) + size.to_bytes(2) + bytes(4) + payload
