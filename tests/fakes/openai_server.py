"""OpenAI's chat completions over a loopback socket, byte by byte, well and badly behaved.

The bytes are written by hand after OpenAI's public API reference ("Chat", "Streaming", "Error codes"); nothing here
was recorded from a live provider. Requests are checked as strictly as the reference describes them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Self

import msgspec
from aiohttp import web

from tests.fakes.openai_transcript import ChatBody, done, event, finish_event, first_event, refusal, usage_event, whole
from tests.fakes.serve_routes import serve_routes


class Fault(Enum):
    """How the server misbehaves. `after` of the script says after how many pieces, where that makes sense."""

    NONE = auto()
    CLEAN_END = auto()
    DONE_WITHOUT_FINISH = auto()
    ABORT = auto()
    ABORT_BEFORE_STATUS = auto()
    STALL = auto()
    STALL_BEFORE_STATUS = auto()
    STALL_AFTER_FINISH = auto()
    ABORT_AFTER_FINISH = auto()
    COMMENTS_ONLY = auto()
    RAW = auto()
    ENDLESS = auto()
    UNSEEN = auto()
    """Pieces without an end of which a client sees nothing."""
    STATUS = auto()


@dataclass(frozen=True)
class Script:
    """What the server does with one request.

    Attributes:
        pieces: the answer's text, one event each.
        reasoning: thinking, one event each, before the answer; in the field `reasoning_field`.
        finish_reason: the terminal marker.
        usage: prompt and completion tokens; None = the server knows no usage.
        fault: how it misbehaves.
        after: how many pieces it sends before that.
        raw: the bytes that it sends for `Fault.RAW`, in place of an event.
        cut: bytes in each write; 0 = one event in each write.
        together: send the whole stream in one write.
        status, headers, body: the answer for `Fault.STATUS`.
    """

    pieces: tuple[str, ...] = ("Hel", "lo €", "!")
    reasoning: tuple[str, ...] = ()
    reasoning_field: str = "reasoning_content"
    finish_reason: str = "stop"
    usage: tuple[int, int] | None = (11, 3)
    fault: Fault = Fault.NONE
    after: int = 0
    raw: bytes = b""
    cut: int = 0
    together: bool = False
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    @classmethod
    def refuse(cls, status: int, code: str | None = None, kind: str = "invalid_request_error", **headers: str) -> Self:
        """Answer with a status and the error body of the reference. Header names have `_` for `-`."""
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return cls(fault=Fault.STATUS, status=status, headers=named, body=refusal("no", code, kind))


@dataclass
class Exchange:
    """One request as the server saw it.

    Attributes:
        client: the port at the client's end of the connection.
        path: the target as the client wrote it.
        headers: the request's.
        body: the request's, checked; None if it was refused.
        sent: how many pieces of the answer were written.
        left: set when the client's socket has closed before the answer's end.
        sent_when_left: `sent` at that moment.
        began: set when the answer's first bytes are written, or when the script stalls before them.
    """

    client: int
    path: str
    headers: dict[str, str]
    body: ChatBody | None = None
    sent: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    sent_when_left: int | None = None
    began: asyncio.Event = field(default_factory=asyncio.Event)


class OpenAiServer:
    """Plays one script for each request; the last one for all that follow.

    Attributes:
        key: the key that it wants; None = no `Authorization` header may come at all.
        url: the `base_url` for clients.
        exchanges: every request so far.
    """

    model = "gpt-fake"

    def __init__(self) -> None:
        self.key: str | None = None
        self.url = ""
        self.exchanges: list[Exchange] = []
        self._scripts: deque[Script] = deque([Script()])
        self._arrived = asyncio.Condition()

    def play(self, *scripts: Script) -> None:
        """What to do with the next requests."""
        self._scripts = deque(scripts)

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        """Serve on a free port of the loopback interface."""
        server = cls()
        async with serve_routes({"* /{path:.*}": server._handle}, "/v1") as server.url:
            yield server

    async def exchange(self, number: int) -> Exchange:
        """The request of that number, counted from 0, as soon as it has come."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.exchanges) > number)
        return self.exchanges[number]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        client = request.get_extra_info("peername")[1]
        headers = {name.lower(): value for name, value in request.headers.items()}
        exchange = Exchange(client, request.raw_path, headers)
        body = await request.read()
        script = self._scripts.popleft() if len(self._scripts) > 1 else self._scripts[0]
        async with self._arrived:
            self.exchanges.append(exchange)
            self._arrived.notify_all()
        try:
            return self._refused(request, exchange, body) or await self._played(request, exchange, script)
        except (asyncio.CancelledError, ConnectionResetError):
            exchange.sent_when_left = exchange.sent
            exchange.left.set()
            raise

    def _refused(self, request: web.Request, exchange: Exchange, body: bytes) -> web.Response | None:
        wanted = None if self.key is None else f"Bearer {self.key}"
        if exchange.headers.get("authorization") != wanted:
            return _failed(401, "Incorrect API key provided", "invalid_api_key")
        if request.method != "POST" or not request.path.endswith("/v1/chat/completions"):
            return _failed(404, f"Invalid URL ({request.method} {request.path})", None)
        if request.content_type != "application/json":
            return _failed(400, "send application/json", None)
        try:
            exchange.body = ChatBody.checked(body)
        except msgspec.MsgspecError as error:
            return _failed(400, str(error), None)
        if exchange.body.model != self.model:
            return _failed(404, f"The model `{exchange.body.model}` does not exist", "model_not_found")
        return None

    async def _played(self, request: web.Request, exchange: Exchange, script: Script) -> web.StreamResponse:
        assert exchange.body is not None
        if script.fault is Fault.STATUS:
            return web.Response(status=script.status, headers=script.headers, body=script.body)
        if script.fault is Fault.STALL_BEFORE_STATUS:
            exchange.began.set()
            await asyncio.Event().wait()
        if script.fault is Fault.ABORT_BEFORE_STATUS:
            return _abort(request)
        if not exchange.body.stream:
            return web.json_response(body=whole(self.model, "".join(script.pieces), script.finish_reason, script.usage))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        writer = _Writer(response, script)
        await writer.write(first_event(self.model))
        exchange.began.set()
        if await self._stream(writer, exchange, script):
            await writer.flush()
            await response.write_eof()
        else:
            _abort(request)
        return response

    async def _stream(self, writer: "_Writer", exchange: Exchange, script: Script) -> bool:
        """Whether the body ends cleanly."""
        for thought in script.reasoning:
            await writer.write(event(self.model, {script.reasoning_field: thought}))
        pieces = script.pieces if script.fault is Fault.NONE else script.pieces[: script.after]
        for piece in pieces:
            await writer.write(event(self.model, {"content": piece}))
            exchange.sent += 1
        match script.fault:
            case Fault.ABORT:
                return False
            case Fault.STALL:
                await asyncio.Event().wait()
            case Fault.COMMENTS_ONLY | Fault.ENDLESS | Fault.UNSEEN:
                await self._forever(writer, exchange, script)
            case Fault.RAW:
                await writer.write(script.raw)
            case Fault.DONE_WITHOUT_FINISH:
                await writer.write(done())
            case Fault.NONE | Fault.STALL_AFTER_FINISH | Fault.ABORT_AFTER_FINISH:
                return await self._finish(writer, exchange, script)
        return True

    async def _forever(self, writer: "_Writer", exchange: Exchange, script: Script) -> None:
        while script.fault is Fault.COMMENTS_ONLY:
            await writer.write(b": keep-alive\n\n")
            await asyncio.sleep(0.005)
        while True:
            text = "" if script.fault is Fault.UNSEEN else f"{exchange.sent} "
            await writer.write(event(self.model, {"content": text}))
            exchange.sent += 1
            await asyncio.sleep(0.001)

    async def _finish(self, writer: "_Writer", exchange: Exchange, script: Script) -> bool:
        await writer.write(finish_event(self.model, script.finish_reason))
        if script.fault is Fault.STALL_AFTER_FINISH:
            await asyncio.Event().wait()
        if script.fault is Fault.ABORT_AFTER_FINISH:
            return False
        asked = exchange.body is not None and exchange.body.stream_options is not None
        if asked and script.usage is not None:
            await writer.write(usage_event(self.model, *script.usage))
        await writer.write(done())
        return True


class _Writer:
    """Writes a stream in the portions that the script asks for."""

    def __init__(self, response: web.StreamResponse, script: Script) -> None:
        self._response = response
        self._cut = script.cut
        self._together = script.together
        self._kept = b""

    async def write(self, data: bytes) -> None:
        """Send, or keep for later."""
        if self._together:
            self._kept += data
        elif self._cut:
            for start in range(0, len(data), self._cut):
                await self._response.write(data[start : start + self._cut])
                await asyncio.sleep(0)
        else:
            await self._response.write(data)

    async def flush(self) -> None:
        """Send what was kept."""
        if self._kept:
            await self._response.write(self._kept)


def _failed(status: int, message: str, code: str | None) -> web.Response:
    return web.Response(status=status, content_type="application/json", body=refusal(message, code))


def _abort(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
