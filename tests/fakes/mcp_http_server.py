"""An MCP server over HTTP with sessions, as servers up to MCP 2025-11-25 have them; one that restarts forgets them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from tests.fakes.serve_routes import serve_routes


class McpHttpServer:
    """Its tools say which session has called them.

    Attributes:
        sessions: those that it knows.
        calls: of each call of a tool, the request's id and trace: as its headers have them, and its `_meta`.
        url: where it listens.
    """

    def __init__(self, refusal: str) -> None:
        self.sessions: set[str] = set()
        self.calls: list[tuple[str | None, str | None, str | None]] = []
        self.url = ""
        self._begun = 0
        self._refusal = refusal

    @asynccontextmanager
    async def running(self) -> AsyncIterator["McpHttpServer"]:
        """Listen while the block runs."""
        async with serve_routes({"POST /mcp": self._answer}, "/mcp") as self.url:
            yield self

    async def _answer(self, request: web.Request) -> web.Response:
        message = msgspec.json.decode(await request.read())
        session = request.headers.get("mcp-session-id")
        if message["method"] == "initialize":
            return self._begin(message["id"])
        if session is None:
            return _json({"id": message.get("id"), "error": {"code": -32600, "message": "no session"}}, status=400)
        if session not in self.sessions:
            kind = "application/json" if self._refusal.startswith("{") else "text/plain"
            return web.Response(status=404, text=self._refusal, content_type=kind)
        if "id" not in message:
            return web.Response(status=202)
        if message["method"] == "tools/call":
            meta = message["params"].get("_meta", {})
            found = request.headers.get("X-Request-Id"), request.headers.get("traceparent"), meta.get("traceparent")
            self.calls.append(found)
        listed = message["method"] == "tools/list"
        result = {"tools": []} if listed else {"content": [{"type": "text", "text": session}]}
        return _json({"id": message["id"], "result": result})

    def _begin(self, number: int) -> web.Response:
        self._begun += 1
        session = f"session {self._begun}"
        self.sessions.add(session)
        server = {"name": "old", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
        return _json({"id": number, "result": result}, {"mcp-session-id": session})


def _json(message: dict[str, object], headers: dict[str, str] | None = None, status: int = 200) -> web.Response:
    body = msgspec.json.encode({"jsonrpc": "2.0", **message})
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)
