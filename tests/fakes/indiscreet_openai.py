"""An OpenAI-compatible server that fails in the way the prompt names, and repeats every secret that it knows."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.fakes.openai_transcript import done, event, finish_event, first_event, usage_event
from tests.fakes.serve_routes import serve_routes

MODEL = "indiscreet"
STATUSES = {
    "400": 400, "401": 401, "403": 403, "404": 404, "413": 413, "422": 422, "429": 429, "500": 500, "503": 503,
}  # fmt: skip
MODES = (*STATUSES, "html", "moved", "in-band", "garbage", "long", "cut", "early", "json", "well")


class IndiscreetOpenAi:
    """Every failure of it carries `canary-provider`, the key that it was sent, and the URL that it was asked at."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator["IndiscreetOpenAi"]:
        """Serve on a free loopback port."""
        server = cls()
        routes = {"POST /canary-path/v1/chat/completions": server._answer}
        async with serve_routes(routes, "/canary-path/v1") as server.url:
            yield server

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        mode = json.loads(await request.read())["messages"][-1]["content"]
        self.asked.append(mode)
        told = f"canary-provider {request.headers.get('Authorization')} {request.url} {dict(request.headers)}"
        headers = {"x-request-id": told, "Retry-After": told, "Location": told, "WWW-Authenticate": told}
        error = {"error": {"message": told, "type": told, "param": told, "code": told}}
        if mode in STATUSES:
            return web.json_response(error, status=STATUSES[mode], headers=headers, reason="canary-provider")
        if mode == "html":
            return web.Response(status=502, text=f"<h1>{told}</h1>", content_type="text/html", headers=headers)
        if mode == "moved":
            return web.Response(status=307, text=told, headers=headers)
        if mode == "json":
            return web.json_response(error)
        return await self._stream(request, mode, told, json.dumps(error))

    async def _stream(self, request: web.Request, mode: str, told: str, error: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "x-request-id": told})
        await response.prepare(request)
        await response.write(f": {told}\n\n".encode() + first_event(MODEL))
        match mode:
            case "in-band":
                await response.write(f"data: {error}\n\n".encode())
            case "garbage":
                await response.write(f"data: {{{told}\n\n".encode())
            case "long":
                await response.write(b"data: " + told.encode() * 20_000)
            case "cut" if request.transport is not None:
                await response.write(event(MODEL, {"content": "one "}) + f": {told}\n\n".encode())
                request.transport.abort()
            case "early":
                await response.write(event(MODEL, {"content": "one "}) + f": {told}\n\n".encode())
            case _:
                await response.write(event(MODEL, {"content": "one "}) + finish_event(MODEL, "stop"))
                await response.write(usage_event(MODEL, 5, 1) + done())
        return response
