"""Conversation -> streams: the running requests of one WebSocket, of any protocol, each in a task of its own."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import structlog
from typing_extensions import override

from tg_base.protocol import Route
from tg_base.runtime import start_task, translate_defects
from tg_base.telemetry import REFUSALS, trace
from tg_gateway.access import Authenticator, Limits, Principal
from tg_gateway.dialects import (
    Ask,
    Catalogue,
    KeptAnswers,
    KeptStreams,
    Name,
    Output,
    Socket,
    StreamedAnswer,
    Writer,
    join_output,
)
from tg_gateway.http import UNMADE, plan_apart
from tg_gateway.jobs import JobRequests
from tg_gateway.relay import DEFECT_MESSAGE, Relay, send_parts
from tg_gateway.telemetry import AccessLogEntry
from tg_gateway.websocket.writer import SocketStream, SocketWriter, ignore_stop
from tg_schema import TgError
from tg_schema.errors import Cancelled, Internal, RateLimited, SlowConsumer, TooLarge

log = structlog.get_logger()

CANCEL_SECONDS = 2.0
"""Seconds that a socket's end waits for the cancels that its client sent before."""
_DEFECTS: Final = translate_defects(Internal, DEFECT_MESSAGE, "gateway.defect", log)


@dataclass(slots=True)
class Backend:
    """The parts of the gateway that all sockets share. An edit of the file replaces the catalogue.

    Attributes:
        jobs: makes in the background the answers that only sockets request.
        kept: makes the answers that any door keeps.
    """

    authenticator: Authenticator
    catalogue: Catalogue
    relay: Relay
    jobs: JobRequests
    limits: Limits
    kept: JobRequests
    streams: KeptStreams


@dataclass(slots=True)
class _Running:
    """One request of the socket.

    Attributes:
        task: runs it.
        stream: its answers.
        entry: its line in the log.
        apart: whether its answer is made apart from the socket.
        cancel: stops the making of such an answer; None = it has yet to begin.
        cancelling: whether the client has asked to stop the making; further cancels have no effect.
    """

    task: asyncio.Task[None]
    stream: SocketStream
    entry: AccessLogEntry
    apart: bool = False
    cancel: Callable[[], Awaitable[object]] | None = None
    cancelling: bool = False

    def begin(self, cancel: Callable[[], Awaitable[object]]) -> None:
        """Note that the answer is made apart, and is stopped by `cancel` from now on."""
        self.apart, self.cancel = True, cancel

    def stop(self) -> None:
        """End the request to free memory, because the client does not read."""
        self.entry.end(SlowConsumer.status, SlowConsumer.type)
        self.task.cancel()

    def end(self) -> None:
        """Clean up after the task, however it ended, even if it was cancelled before it began."""
        self.stream.fail(Cancelled("the request was cancelled"))
        # A cancelled task keeps its traceback, which refers to the stream: break the cycle.
        self.stream.stop = ignore_stop
        self.entry.write()


class Session(Socket):
    """One client on one socket. Enter it to serve; leave it to stop all its requests.

    Args:
        backend: what all sockets share.
        writer: the way to the client.
        entry: the handshake's line in the log.
        address: the client's address.
        principal: the principal of the handshake's token.
        door: the name of its door.
        max_request: maximum bytes of a request.
    """

    def __init__(
        self,
        backend: Backend,
        writer: SocketWriter,
        entry: AccessLogEntry,
        address: str,
        principal: Principal | None,
        *,
        door: str,
        max_request: int,
    ) -> None:
        self.max_name = backend.limits.socket_id
        self._principal = principal if backend.authenticator.required else backend.authenticator.check(None, address)
        self._backend = backend
        self._writer = writer
        self._entry = entry
        self._address = address
        self._door = door
        self._max_request = max_request
        self._asked = 0
        self._running: dict[Name, _Running] = {}
        # Not a TaskGroup: it re-raises a cancellation from frames that refer to it, a cycle that holds the whole
        # socket.
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancels: set[asyncio.Task[None]] = set()

    @property
    @override
    def catalogue(self) -> Catalogue:
        return self._backend.catalogue

    @property
    @override
    def key(self) -> str | None:
        """The name of the key that its next request has; None = it must show a token, for instance a new one."""
        return None if self._principal is None else self._backend.authenticator.name_of(self._principal)

    @property
    @override
    def kept(self) -> KeptAnswers:
        return self._backend.jobs.store.of(self.key)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.end(Cancelled("the socket was closed"))
        leaving, cancelled = asyncio.create_task(self._leave()), False
        # The server cancels the socket's task once the connection is gone, which is usual here.
        while not leaving.done():
            try:
                await asyncio.wait([leaving])
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    async def _leave(self) -> None:
        """Wait for all requests to end and, for `CANCEL_SECONDS` at most, for cancels that the client sent before."""
        # A request that is cancelled while it begins stops itself.
        cancels = self._cancels.union(each.task for each in self._running.values() if each.cancelling)
        try:
            if cancels:
                await asyncio.wait(cancels, timeout=CANCEL_SECONDS)
        finally:
            for running in self._running.values():
                if running.cancelling:
                    running.task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def end(self, error: TgError) -> None:
        """Tell every running request that it has ended, and end it."""
        for running in self._running.values():
            # Send the error before the task ends, which would only report a cancellation.
            running.stream.fail(error)
            # A cancelled background answer may only be starting; its task must continue until `cancel` is known.
            if not running.cancelling:
                running.task.cancel()
        # Send now: the socket may be closed before this turn of the event loop is over.
        self._writer.flush()

    @override
    def authenticate(self, token: str | None) -> None:
        # Reset the key first: after a wrong token, the rights of the token before must be gone.
        self._principal = None
        self._principal = self._backend.authenticator.check(token, self._address)

    @override
    def check_size(self, size: int) -> None:
        if size > self._max_request:
            most = f"the request may have at most {self._max_request} bytes"
            raise TooLarge(f"{most}: send less, or raise body_limit of [gateway]")

    @override
    def send(self, frames: Output) -> None:
        self._writer.write(join_output(frames))

    @override
    def is_running(self, name: Name) -> bool:
        return name in self._running

    @override
    def cancel(self, name: Name) -> None:
        running = self._running.get(name)
        # Each cancel reads the log and appends to it.
        if running is None or running.cancelling:
            return
        if not running.apart:
            running.task.cancel()
            return
        running.cancelling = True
        if running.cancel is not None:
            start_task(self._cancels, self._stop_making(running, running.cancel))

    @override
    def ask(
        self,
        name: Name,
        route: Route[Any, Any],
        size: int,
        parse: Callable[[], Ask | Awaitable[Ask]],
        fail: Callable[[TgError], Output],
    ) -> None:
        self.check_size(size)
        entry = self._make_entry(route.spec.name)
        entry.flow = route.flow
        stream = SocketStream(self._writer, fail)
        self._begin(name, lambda: self._relay(name, parse, stream, entry), stream, entry)

    @override
    def follow(
        self, name: Name, kept: str, parts: AsyncGenerator[bytes, None], fail: Callable[[TgError], bytes]
    ) -> None:
        entry, stream = self._make_entry("kept"), SocketStream(self._writer, fail)
        answers = self.kept
        self._begin(name, lambda: send_parts(parts, stream), stream, entry).begin(lambda: answers.cancel(kept))

    @override
    def attach(
        self,
        name: Name,
        stream: str,
        after: int,
        restore: Callable[[bytes], Writer[Any]],
        fail: Callable[[TgError], Output],
    ) -> None:
        entry, out, backend = self._make_entry("kept"), SocketStream(self._writer, fail), self._backend
        parts = backend.streams.follow(backend.kept.store.of(self.key), stream, after, restore)
        self._begin(name, lambda: send_parts(parts, out), out, entry)

    def _make_entry(self, service: str) -> AccessLogEntry:
        """A log entry for one more request.

        Raises:
            RateLimited: too many run on this socket.
        """
        if len(self._running) >= self._backend.limits.socket_streams:
            REFUSALS.labels(service, "socket").inc()
            most = self._backend.limits.socket_streams
            raise RateLimited(f"a socket has at most {most} requests running; wait for one to end", retry_after=1.0)
        self._asked += 1
        entry = AccessLogEntry("socket", f"{self._entry.request}.{self._asked}", self._entry.traceparent, self.key)
        entry.service = service
        return entry

    def _begin(
        self, name: Name, work: Callable[[], Coroutine[None, None, None]], stream: SocketStream, entry: AccessLogEntry
    ) -> _Running:
        # Each request has a span of its own; the socket's task keeps the handshake's.
        context = copy_context()
        entry.span = trace.Span.at_door(entry.request, entry.traceparent, trace.find_door())
        context.run(trace.enter, entry.span)
        task = start_task(self._tasks, self._serve(work, stream, entry), context=context)
        running = self._running[name] = _Running(task, stream, entry)
        stream.stop = running.stop
        # Run in the request's own context, so that its log line has its ids.
        task.add_done_callback(lambda _: self._running.pop(name).end(), context=context)
        return running

    async def _serve(
        self, work: Callable[[], Coroutine[None, None, None]], stream: SocketStream, entry: AccessLogEntry
    ) -> None:
        try:
            with _DEFECTS:
                working = work()
                # Drop it: it refers to the request, whose prompt may be long, and the answer may take minutes.
                del work
                await working
            entry.end(200, "ok")
        except TgError as error:
            entry.end(error.status, error.type)
            stream.fail(error)

    async def _relay(
        self,
        name: Name,
        parse: Callable[[], Ask | Awaitable[Ask]],
        stream: SocketStream,
        entry: AccessLogEntry,
    ) -> None:
        parsed = parse()
        asked = await parsed if isinstance(parsed, Awaitable) else parsed
        del parse, parsed
        entry.flow, entry.service = asked.route.flow, asked.route.spec.name
        # No variable here refers to the running request: the traceback of a cancelled task would hold it in a cycle.
        if await self._relay_apart(self._running[name], asked, entry):
            return
        async with self._backend.relay.ask(asked, entry) as exchange:
            if asked.on_accepted is not None:
                exchange.responses.listen_accepted(asked.on_accepted, asked.on_opening)
            writer, streaming = asked.writer, asked.streaming
            del asked
            if streaming:
                await exchange.relay(writer, stream)
            else:
                await stream.deliver(join_output(await exchange.write_whole(writer)))

    async def _relay_apart(self, running: _Running, asked: Ask, entry: AccessLogEntry) -> bool:
        """Relay the answer if it is made independently of the socket. Returns whether it is."""
        backend, keeping = self._backend, asked.keeping
        stores = entry.key in backend.authenticator.rights.storing
        background = plan_apart(asked, keeping, self._door, backend.streams, stores=stores)
        if background is None:
            return False
        # A stream with an id of ours can be read at any door; a name that a dialect or a client gave is known only to
        # its socket.
        named = background is asked.background or background.joins is not None
        jobs = backend.jobs if named else backend.kept
        running.apart = named and not background.optional
        try:
            log = await jobs.put(asked, background, entry)
        except UNMADE:
            if background.optional:
                return False
            raise
        kept = jobs.store.of(entry.key, bounded=log is None, log=log)
        cancel = partial(kept.cancel, background.name, background.head)
        running.begin(cancel)
        if running.cancelling:
            await self._stop_making(running, cancel)
        if keeping is not None and keeping.announce is not None and not (named or background.optional):
            running.stream.send(keeping.announce(background.name), last=False)
        answer = background.answer(kept)
        if isinstance(answer, StreamedAnswer):
            await send_parts(answer.parts, running.stream)
        else:
            await running.stream.deliver(answer.body)
        return True

    async def _stop_making(self, running: _Running, cancel: Callable[[], Awaitable[object]]) -> None:
        """The end of the stream comes from the answer's log, like all its parts."""
        try:
            with _DEFECTS:
                await cancel()
        except TgError as error:
            running.stream.fail(error)
            running.task.cancel()
