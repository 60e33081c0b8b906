"""An OpenAI-compatible server whose answers wait, after their first piece, until the test lets them end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.fakes.openai_transcript import done, event, finish_event, first_event, usage_event
from tests.fakes.serve_routes import serve_routes

MODEL = "gated"


class GatedOpenAi:
    """Says "one ", waits for `gate`, then says "two" and ends. Counts the clients that left before."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: list[str | None] = []
        self.gate = asyncio.Event()
        self.left = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator["GatedOpenAi"]:
        """Serve on a free loopback port."""
        server = cls()
        async with serve_routes({"POST /v1/chat/completions": server._answer}, "/v1") as server.url:
            yield server
            server.gate.set()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.keys.append(request.headers.get("Authorization"))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(first_event(MODEL) + event(MODEL, {"content": "one "}))
        try:
            await self.gate.wait()
            await response.write(event(MODEL, {"content": "two"}) + finish_event(MODEL, "stop"))
            await response.write(usage_event(MODEL, 5, 2) + done())
        except (asyncio.CancelledError, ConnectionError):
            self.left.set()
            raise
        return response
