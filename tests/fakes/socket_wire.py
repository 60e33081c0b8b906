"""A WebSocket at the edge of the SDK's world: greets as it is told, and answers each request with a test's frames."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from aiohttp import WSMsgType, web

from tests.fakes.serve_routes import serve_routes

GREETED = '{"type":"auth-ok","default_workspace":"default"}'


class SocketWire:
    """Frames are text (sent as they are, with ID for the request's id), bytes (a binary frame), or None: close."""

    def __init__(self, frames: Sequence[str | bytes | None], greeting: str | None = GREETED) -> None:
        self.frames = frames
        self.greeting = greeting
        self.received: list[dict[str, object]] = []
        self.answered = asyncio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """The URL, while the block runs."""
        async with serve_routes({"GET /api/v1/socket": self._serve}, "/") as url:
            yield url

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            assert message.type is WSMsgType.TEXT
            self.received.append(msgspec.json.decode(message.data))
            if self.received[-1].get("type") == "auth":
                if self.greeting is None:
                    break
                await socket.send_str(self.greeting)
            elif "cancel" not in self.received[-1] and not await self._answer(socket, str(self.received[-1]["id"])):
                break
        return socket

    async def _answer(self, socket: web.WebSocketResponse, request: str) -> bool:
        for frame in self.frames:
            if frame is None:
                return False
            if isinstance(frame, bytes):
                await socket.send_bytes(frame)
            else:
                await socket.send_str(frame.replace("ID", request))
        self.answered.set()
        return True
