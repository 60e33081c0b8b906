"""Client's messages -> streams: what one WebSocket has going, each request as a task of its own."""

import asyncio
from contextvars import copy_context
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog

from tg_base.telemetry import REFUSALS, trace
from tg_gateway.access import Authenticator, Limits, Principal
from tg_gateway.relay import DEFAULT_FLOW, DEFECT_MESSAGE, Endpoint, Endpoints, Relay
from tg_gateway.telemetry import AccessLogEntry
from tg_gateway.websocket import envelope
from tg_gateway.websocket.flow_service import FlowService
from tg_gateway.websocket.writer import SocketStream, SocketWriter
from tg_schema import TgError
from tg_schema.errors import BadRequest, Cancelled, Internal, RateLimited, SlowConsumer, TooLarge, Unauthorized

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Backend:
    """What all sockets share: what stands behind the door."""

    authenticator: Authenticator
    directory: Endpoints
    relay: Relay
    flows: FlowService
    limits: Limits
    body_limit: int


class Session:
    """One client on one socket. Enter it to serve; leave it to stop everything that it has going.

    Args:
        backend: what all sockets share.
        writer: the way to the client.
        entry: the handshake's line in the log.
        address: where the client is.
        principal: whose token the handshake had.
    """

    def __init__(
        self,
        backend: Backend,
        writer: SocketWriter,
        entry: AccessLogEntry,
        address: str,
        principal: Principal | None,
    ) -> None:
        self._principal = principal if backend.authenticator.required else backend.authenticator.check(None, address)
        self._backend = backend
        self._writer = writer
        self._entry = entry
        self._address = address
        self._asked = 0
        self._running: dict[envelope.Id, tuple[asyncio.Task[None], SocketStream]] = {}
        self._group = asyncio.TaskGroup()

    @property
    def key(self) -> str | None:
        """The name of the key that its next request has; None = it must show a token, for instance a new one."""
        return None if self._principal is None else self._backend.authenticator.name_of(self._principal)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.end(Cancelled("the socket was closed"))
        await self._group.__aexit__(kind, error, tb)

    def end(self, error: TgError) -> None:
        """Tell every running request that it has ended, and end it."""
        for task, stream in self._running.values():
            stream.fail(error)
            task.cancel()
        self._writer.flush()

    def take(self, message: bytes) -> None:
        """One message came; whatever it is, nobody but its own request is disturbed by it."""
        try:
            asked = envelope.parse_envelope(message)
            if asked.type == "auth":
                self._authenticate(asked.token)
            else:
                self._dispatch(asked)
        except TgError as error:
            self._refuse(envelope.id_of(message), error)

    def _authenticate(self, token: str | None) -> None:
        self._principal = None
        try:
            self._principal = self._backend.authenticator.check(token, self._address)
        except TgError as error:
            self._writer.write(envelope.auth_failed(error))
        else:
            self._writer.write(envelope.AUTH_OK)

    def _dispatch(self, asked: envelope.Envelope) -> None:
        if self.key is None and not (asked.cancel and asked.id in self._running):
            raise Unauthorized("auth failure")
        if asked.id is None:
            raise BadRequest("id is missing: every request needs one of its own")
        if isinstance(asked.id, str) and len(asked.id) > self._backend.limits.socket_id:
            raise BadRequest(f"id may have at most {self._backend.limits.socket_id} characters")
        if asked.cancel:
            self._cancel(asked.id)
        elif asked.id in self._running:
            raise BadRequest("a request with this id is running on this socket; take another id")
        elif asked.service is None or not bytes(asked.request):
            raise BadRequest("service or request is missing: send `id`, `service`, `request` and, optionally, `flow`")
        elif asked.flow is None and asked.service in self._backend.flows.services:
            answer = self._backend.flows.answer(asked.service, bytes(asked.request))
            self._writer.write(envelope.response(envelope.opening(asked.id), answer, last=True))
        else:
            endpoint = self._backend.directory.find(asked.flow or DEFAULT_FLOW, asked.service)
            self._start(asked.id, endpoint, bytes(asked.request))

    def _cancel(self, request: envelope.Id) -> None:
        """A request that is not running has ended a moment ago: nothing to say."""
        if request in self._running:
            self._running[request][0].cancel()

    def _start(self, request: envelope.Id, endpoint: Endpoint, body: bytes) -> None:
        if len(self._running) >= self._backend.limits.socket_streams:
            REFUSALS.labels(endpoint.route.spec.name, "socket").inc()
            most = self._backend.limits.socket_streams
            raise RateLimited(f"a socket has at most {most} requests running; wait for one to end", retry_after=1.0)
        if len(body) > self._backend.body_limit:
            raise TooLarge(f"the request may have at most {self._backend.body_limit} bytes")
        stream = SocketStream(self._writer, request)
        self._asked += 1
        entry = AccessLogEntry("socket", f"{self._entry.request}.{self._asked}", self._entry.traceparent, self.key)
        entry.flow, entry.service = endpoint.route.flow, endpoint.route.spec.name
        context = copy_context()
        context.run(trace.enter, trace.Span.at_door(entry.request, entry.traceparent))
        task = self._group.create_task(self._serve(endpoint, body, stream, entry), context=context)
        stream.stop = lambda: self._stop(task, entry)
        self._running[request] = task, stream
        task.add_done_callback(lambda _: self._end(request, stream, entry), context=context)

    def _stop(self, task: asyncio.Task[None], entry: AccessLogEntry) -> None:
        """The client does not read, and this request has to make room."""
        entry.end(SlowConsumer.status, SlowConsumer.type)
        task.cancel()

    def _end(self, request: envelope.Id, stream: SocketStream, entry: AccessLogEntry) -> None:
        """However a request's task ended, even one that was cancelled before it began."""
        del self._running[request]
        stream.fail(Cancelled("the request was cancelled"))
        entry.write()

    async def _serve(self, endpoint: Endpoint, body: bytes, stream: SocketStream, entry: AccessLogEntry) -> None:
        try:
            await self._relay(endpoint, body, stream, entry)
            entry.end(200, "ok")
        except TgError as error:
            entry.end(error.status, error.type)
            stream.fail(error)
        except Exception:
            log.exception("gateway.defect")
            entry.end(Internal.status, Internal.type)
            stream.fail(Internal(DEFECT_MESSAGE))

    async def _relay(self, endpoint: Endpoint, body: bytes, stream: SocketStream, entry: AccessLogEntry) -> None:
        asked = endpoint.dialect.parse(body)
        async with self._backend.relay.ask(endpoint, asked, entry) as exchange:
            if asked.streaming:
                await exchange.relay(stream)
            else:
                await stream.deliver(await exchange.whole())

    def _refuse(self, request: envelope.Id | None, error: TgError) -> None:
        kind = "auth-required" if isinstance(error, Unauthorized) else error.type
        if request is not None and request in self._running:
            self._writer.write(envelope.aside(request, error, kind))
            return
        short = request is not None and len(str(request)) <= self._backend.limits.socket_id
        opened = envelope.opening(request) if short and request is not None else b"{"
        self._writer.write(envelope.failure(opened, error, kind))
