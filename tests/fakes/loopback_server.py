"""Plan -> bytes on a loopback socket: what the servers of all wires over HTTP/1.1 have in common."""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import ClassVar, Final, Self

from aiohttp import web

from tests.fakes.endless import MARKS, pour, pour_compressed, pour_interim
from tests.fakes.plan import Asked, Exchange, Fault, Plan
from tests.fakes.serve_routes import serve_routes
from tg_schema import ImagePart, TgError
from tg_schema.errors import BadRequest, ContextLengthExceeded, NotFound, ProviderAuth, RateLimited, Unavailable

STATUS: Final[dict[type[TgError], int]] = {
    BadRequest: 400,
    ContextLengthExceeded: 400,
    ProviderAuth: 401,
    NotFound: 404,
    RateLimited: 429,
    Unavailable: 503,
}
"""Of the refusals of most wires."""


class Refused(Exception):
    """A request that the real provider would refuse; `response` is what it would say."""

    def __init__(self, response: web.Response) -> None:
        super().__init__(f"refused with status {response.status}: {response.text}")
        self.response = response


class LoopbackServer(ABC):
    """One wire: reads requests strictly, and writes the bytes of a plan. A subclass has the bytes alone.

    Attributes:
        url: "http://127.0.0.1:PORT", or with https.
        exchanges: every request for an answer so far.
        content_type: of a stream.
        keep_alive: bytes that this wire's servers send to keep a connection open; b"" where there are none.
        garbage: a whole frame of this wire, with nonsense in it.
        filler: some thousand bytes that this wire passes over.
        unavailable: this wire's code for `Unavailable`; "" = it has none.
        request_header: in which it names a request that it refuses, for its support; "" = it does not.
        key: that it wants.
        model: the only one that it has.
    """

    content_type: ClassVar[str] = "text/event-stream"
    keep_alive: ClassVar[bytes] = b": keep-alive\n\n"
    garbage: ClassVar[bytes] = b'data: {"nonsense\n\n'
    filler: ClassVar[bytes] = b":\n" * 2048
    unavailable: ClassVar[str] = ""
    request_header: ClassVar[str] = ""
    key: ClassVar[str] = ""
    model: ClassVar[str] = "fake-model"

    def __init__(self) -> None:
        self.url = ""
        self.exchanges: list[Exchange] = []
        self._plans: deque[Plan] = deque([Plan()])
        self._arrived = asyncio.Condition()
        self._transports: set[asyncio.Transport] = set()

    def authorized(self, request: web.Request) -> bool:
        """Whether the request has the key in its place."""
        return request.headers.get("authorization") == f"Bearer {self.key}"

    @abstractmethod
    def read(self, request: web.Request, body: bytes) -> Asked:
        """The request in our words.

        Raises:
            Refused: the real provider would refuse it: wrong path, key, field, type or order of turns.
        """

    @abstractmethod
    def refusal(self, plan: Plan) -> web.Response:
        """The answer for `Fault.REFUSE`: the provider's status, headers and body for `plan.error`."""

    @abstractmethod
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        """The events before the text, the reasoning among them."""

    @abstractmethod
    def piece(self, text: str) -> bytes:
        """The event for one piece of text."""

    @abstractmethod
    def closing(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        """The events after the text: tool calls, terminal marker, usage."""

    @abstractmethod
    def error(self, plan: Plan) -> bytes:
        """The event that reports `plan.error` in a stream."""

    def models(self, request: web.Request, plan: Plan) -> web.Response | None:
        """The answer to a request for the provider's list of models; None if `request` is for something else."""
        return None

    def whole(self, request: web.Request, plan: Plan, asked: Asked) -> web.Response | None:
        """The answer to a request that is not for a stream; None if `request` is for a stream."""
        return None

    def choose(self, plan: Plan, asked: Asked) -> Plan:
        """The plan for a request: the next one, or of a server that answers by what it is asked its own.

        Raises:
            Refused: as `read`.
        """
        return plan

    def play(self, *plans: Plan) -> None:
        """What to do with the next requests; the last plan serves all that follow."""
        self._plans = deque(plans)

    @classmethod
    @asynccontextmanager
    async def running(cls, tls: ssl.SSLContext | None = None) -> AsyncIterator[Self]:
        """Serve on a free port of the loopback interface."""
        server = cls()
        try:
            async with serve_routes({"* /{path:.*}": server._handle}, tls=tls) as server.url:
                yield server
        finally:
            await server._end()

    async def exchange(self, number: int) -> Exchange:
        """The request of that number, counted from 0, as soon as it has come."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.exchanges) > number)
        return self.exchanges[number]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            self._transports.add(request.transport)
        if (listed := self.models(request, self._plans[0])) is not None:
            return listed
        body = await request.read()
        plan = self._plans.popleft() if len(self._plans) > 1 else self._plans[0]
        exchange = Exchange(request.raw_path, {name.lower(): value for name, value in request.headers.items()})
        async with self._arrived:
            self.exchanges.append(exchange)
            self._arrived.notify_all()
        try:
            asked = exchange.asked = self.read(request, body)
            plan = self.choose(plan, asked)
        except Refused as refused:
            return refused.response
        if plan.fault is Fault.REFUSE:
            refusal = self.refusal(plan)
            exchange.refused = refusal.status
            if self.request_header:
                refusal.headers[self.request_header] = f"req_{len(self.exchanges)}"
            return refusal
        whole = self.whole(request, plan, asked)
        if whole is not None and plan.fault is Fault.NONE:
            return whole
        try:
            return await self._played(request, exchange, plan, asked)
        except (asyncio.CancelledError, ConnectionResetError):
            exchange.left.set()
            raise

    async def _end(self) -> None:
        """A transport outlives the loop while TLS of Python 3.11 waits for a farewell, or a client reads nothing."""
        for transport in self._transports:
            transport.abort()
        await asyncio.sleep(0)

    async def _played(self, request: web.Request, exchange: Exchange, plan: Plan, asked: Asked) -> web.StreamResponse:
        if plan.fault is Fault.SILENCE:
            exchange.began.set()
            await asyncio.Event().wait()
        if plan.fault is Fault.ENDLESS_CONTINUE:
            exchange.began.set()
            await pour_interim(request)
            raise ConnectionResetError
        response = web.StreamResponse(headers={"Content-Type": self.content_type})
        if plan.fault is Fault.COMPRESSED:
            response.headers["Content-Encoding"] = "gzip"
            await response.prepare(request)
            await pour_compressed(response, self.filler)
        await response.prepare(request)
        for data in self._events(plan, asked):
            await _write(response, data, plan.cut)
        exchange.began.set()
        if plan.fault is Fault.ENDLESS_FILLER:
            await pour(response, self.filler)
        if plan.fault is Fault.ENDLESS_TEXT:
            await pour(response, self.piece("all work and no play " * 512))
        while plan.fault is Fault.KEEP_ALIVE and self.keep_alive:
            await response.write(self.keep_alive)
            await asyncio.sleep(0.005)
        if plan.fault in {Fault.STALL, Fault.KEEP_ALIVE}:
            await asyncio.Event().wait()
        exchange.done.set()
        if plan.fault is Fault.ABORT and request.transport is not None:
            await plan.gate.wait()
            # Not `abort`: a reset may overtake what the client has not read yet.
            request.transport.close()
            return response
        await response.write_eof()
        return response

    def _events(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        yield from self.opening(plan, asked)
        whole = plan.fault in {Fault.NONE, Fault.TEXT_AFTER_FINISH}
        for text in plan.text if whole else plan.text[: plan.after]:
            yield self.piece(text)
        if plan.fault is Fault.ERROR:
            yield self.error(plan)
        if plan.fault is Fault.GARBAGE:
            yield self.garbage
        if plan.fault is Fault.NONE:
            yield from self.closing(plan, asked)
        if plan.fault is Fault.TEXT_AFTER_FINISH:
            ended = False
            for data in self.closing(plan, asked):
                yield data
                ended = ended or any(mark in data for mark in MARKS)
                if ended:
                    yield self.piece("and more")


def read_image(url: str) -> ImagePart:
    """An image where it is, or the one that the URL has in it."""
    head, comma, data = url.partition(";base64,")
    return ImagePart(media_type=head.removeprefix("data:"), data=data) if comma else ImagePart(url=url)


async def _write(response: web.StreamResponse, data: bytes, cut: int) -> None:
    for start in range(0, len(data), cut or max(len(data), 1)):
        await response.write(data[start : start + cut] if cut else data)
        await asyncio.sleep(0)
