"""One model server of a pool, as vLLM answers chats: it says who it is, and streams when asked."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.fakes.serve_routes import serve_routes


class PoolMember:
    """An HTTP server on loopback.

    Attributes:
        port: where it listens.
        asked: the bodies that came, decoded.
        headers: the headers that came with them.
        says_model: whether a stream tells who answers.
        load: sent as the ORCA header, if set.
        status: of the next answers.
        adapters: that it has, which `load_lora_adapter` adds to; None = it answers for any model, and loads none.
        keeps_adapters: whether it has what it said that it loaded.
        gate: each piece of a stream but the first, and each load of an adapter, waits for it.
        began: set when a request has come.
        left: set when a client left in mid-stream.
    """

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[dict[str, object]] = []
        self.headers: list[dict[str, str]] = []
        self.says_model = True
        self.load = ""
        self.status = 200
        self.adapters: set[str] | None = None
        self.keeps_adapters = True
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Event()
        self.left = asyncio.Event()

    @property
    def address(self) -> str:
        """As an endpoint names it."""
        return f"127.0.0.1:{self.port}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Any path. A body that is no JSON is told by its size alone."""
        data = await request.read()
        self.headers.append({key.lower(): value for key, value in request.headers.items()})
        self.began.set()
        headers = {"endpoint-load-metrics": self.load} if self.load else {}
        try:
            body = json.loads(data)
        except ValueError:
            return web.json_response({"port": self.port, "bytes": len(data)}, headers=headers)
        self.asked.append(body)
        if self.status != 200:
            return web.json_response({"error": {"message": "no"}}, status=self.status, headers=headers)
        if request.path.endswith("/load_lora_adapter"):
            return await self._load(body["lora_name"])
        if self.adapters is not None and body["model"] not in self.adapters:
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        if body.get("stream"):
            return await self._stream(request, body, headers)
        message = {"role": "assistant", "content": f"I am {self.port}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": body.get("model")}
        return web.json_response({**answer, "choices": [choice], "usage": usage, "bytes": len(data)}, headers=headers)

    async def _load(self, adapter: str) -> web.Response:
        if self.adapters is None:
            return web.json_response({"error": {"message": "not enabled"}}, status=404)
        if adapter in self.adapters:
            return web.json_response({"error": {"message": "it has already been loaded"}}, status=400)
        await self.gate.wait()
        if self.keeps_adapters:
            self.adapters.add(adapter)
        return web.Response(text="Success")

    async def _stream(
        self, request: web.Request, body: dict[str, object], headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        base = {"id": "1", "object": "chat.completion.chunk", "created": 1}
        if self.says_model:
            base["model"] = body.get("model")
        try:
            for text in ("I ", "am ", str(self.port)):
                choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
                await response.write(f"data: {json.dumps({**base, 'choices': [choice]})}\n\n".encode())
                await self.gate.wait()
        except (ConnectionResetError, asyncio.CancelledError):
            self.left.set()
            raise
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        await response.write(f"data: {json.dumps({**base, 'choices': [end]})}\n\n".encode())
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        await response.write(f"data: {json.dumps({**base, 'choices': [], 'usage': usage})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response


@asynccontextmanager
async def pool_member(port: int = 0) -> AsyncIterator[PoolMember]:
    """Serve until the block is left."""
    member = PoolMember()
    async with serve_routes({"* /{path:.*}": member.answer}, port=port) as url:
        member.port = int(url.rpartition(":")[2])
        yield member
