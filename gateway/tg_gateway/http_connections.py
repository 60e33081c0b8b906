"""HTTP server -> whoever bounds its connections: each one as it is opened and closed, before it has asked anything."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.http_parser import HttpRequestParser
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from tg_base.runtime import FewItems
from tg_gateway.http import StartLine, make_unreadable

LOOK_SECONDS: Final = 0.5
"""Between two looks for clients that have left."""
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
"""Known on Linux alone."""
_ESTABLISHED: Final = 1

_HEAD_END: Final = b"\r\n\r\n"
_NOTHING: Final = ((), False, b"")

OnTransport = Callable[[asyncio.Transport], None]


def watch_connections(server: web.Server, opened: OnTransport, closed: OnTransport) -> None:
    """Call `opened` and `closed` for every connection from now on; aiohttp has no other place for it.

    Args:
        server: that of a runner that was set up, and does not listen yet.
        opened: may write to the connection and close it; nothing was read from it.
        closed: it is gone.
    """
    made, lost = server.connection_made, server.connection_lost

    def connection_made(handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        # It is nearly always short: most clients wait for an answer before they ask again.
        handler._messages = FewItems()  # type: ignore[assignment]  # noqa: SLF001 - there is no public way
        handler._parser = RestingParser(handler)  # type: ignore[assignment]  # noqa: SLF001 - nor here
        made(handler, transport)
        opened(transport)

    def connection_lost(handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        # Before `lost`, which takes the transport away.
        if handler.transport is not None:
            closed(handler.transport)
        lost(handler, exc)

    server.connection_made = connection_made  # type: ignore[method-assign]
    server.connection_lost = connection_lost  # type: ignore[method-assign]


class RestingParser:
    """A connection's parser, which exists only while a request has not come whole.

    aiohttp's keeps the head of the last request in two forms, and has 0.8 KiB of its own: in all 1.5 KiB, and 4 KiB
    with the headers of an SDK, for as long as the answer takes. Where a request does not begin and end with a read, has
    no known length or is the connection's last, the parser stays: only it knows what may come next.

    Args:
        handler: the connection, with a parser that has read nothing.
    """

    __slots__ = ("_body", "_fresh", "_handler", "_line", "_missing", "_parser", "_payload", "_refused")

    def __init__(self, handler: web.RequestHandler) -> None:
        # It keeps its limits and its parser to itself.
        self._handler: Any = handler
        self._parser: Any = self._handler._parser  # noqa: SLF001
        self._fresh = True
        # Of the request that the parser read first: its body, and the bytes that have not come.
        self._payload: Any = None
        self._missing = 0
        # Of the request that came last, until it has come whole: what comes meanwhile is no head.
        self._body: Any = None
        # Of a head that has not come whole.
        self._line: StartLine | None = None
        self._refused = False

    def feed_data(self, data: bytes) -> tuple[Any, bool, bytes]:
        """As aiohttp's; of one request after the other, but for their `raw_headers`, which nobody reads."""
        if self._parser is None:
            if not data:
                return _NOTHING
            self._parser = self._make()
            self._fresh = True
        if self._refused:
            # The rest of what was refused.
            return _NOTHING
        try:
            messages, upgraded, rest = self._parser.feed_data(data)
        except HttpProcessingError as error:
            return [self._refuse(error, data)], False, b""
        # Bodies of a known length come this way with each read, and need no call.
        if messages or self._payload is None:
            self._keep_line(messages, data)
        if self._fresh:
            self._fresh = False
            if len(messages) == 1 and not upgraded:
                ((message, self._payload),) = messages
                messages = ((message._replace(raw_headers=()), self._payload),)
                self._missing = _count_missing(message, data)
        elif self._payload is not None:
            self._missing -= len(data)
        if self._payload is not None:
            self._rest()
        return messages, upgraded, rest

    def _keep_line(self, messages: Any, data: bytes) -> None:
        """Know the first line of a head that is not whole."""
        if messages:
            self._line, body = None, messages[-1][1]
            self._body = None if body.is_eof() else body
        elif self._body is not None:
            # These bytes may be the last ones of the body, whose end alone the parser tells.
            self._body = None if self._body.is_eof() else self._body
        elif data:
            self._line = self._line or StartLine()
            self._line.add(data)

    def _refuse(self, error: HttpProcessingError, data: bytes) -> tuple[Any, StreamReader]:
        """The last request of the connection, in place of what could not be read."""
        handler, self._refused = self._handler, True
        # Counted there, and never logged as an error: anybody can send it.
        handler.logger.debug("no request", exc_info=error)
        line = self._line or StartLine()
        line.add(data)
        message = make_unreadable(error, line, (handler.max_line_size, handler.max_headers))
        if not isinstance(error, LineTooLong):
            return message, EMPTY_PAYLOAD
        # More of it may be on its way: it is read for a while, or its sender would see a reset and not the answer.
        return message, StreamReader(handler, handler._read_bufsize, loop=handler._loop)  # noqa: SLF001

    def _rest(self) -> None:
        """Let go of the parser where the request has ended, and of the request where that cannot be told."""
        if self._missing < 0:
            self._payload = None
        # The reader's limit may hold back what the parser has.
        elif not self._missing and self._payload.is_eof():
            self._parser = self._payload = self._body = None

    def message_consumed(self) -> None:
        """As aiohttp's."""
        if self._parser is not None:
            self._parser.message_consumed()

    def pause_reading(self) -> None:
        """As aiohttp's: while a body is read, there is a parser."""
        if self._parser is not None:
            self._parser.pause_reading()

    def set_upgraded(self, upgraded: bool) -> None:
        """As aiohttp's."""
        if self._parser is not None:
            self._parser.set_upgraded(upgraded)

    def _make(self) -> HttpRequestParser:
        """Like the one that the handler made for itself."""
        handler = self._handler
        return HttpRequestParser(
            handler,
            handler._loop,  # noqa: SLF001
            handler._read_bufsize,  # noqa: SLF001
            max_line_size=handler.max_line_size,
            max_field_size=handler.max_field_size,
            max_headers=handler.max_headers,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=handler._max_msg_queue_size,  # noqa: SLF001
        )


def _count_missing(message: Any, data: bytes) -> int:
    """Bytes that do not come with `data`, which begins with this message; negative where that is not known.

    Never too many: what looks like the end of the head is that or, among empty lines before it, stands before it.
    """
    end = data.find(_HEAD_END)
    # Behind the last request that a connection may have, only this parser refuses another.
    if end < 0 or message.chunked or message.upgrade or message.should_close:
        return -1
    # The parser has refused what is no number of 64 bits, but for zeros before it, of which `int` takes 4,300.
    length = int(message.headers.get("Content-Length", "").lstrip("0") or 0)
    return end + len(_HEAD_END) + length - len(data)


async def notice_leaving(server: web.Server) -> None:
    """Close the connections of clients that have left while nothing is read from them, until cancelled.

    aiohttp does not read behind 32 requests that wait for the one before them, and would not see the end of the
    connection until that one is answered. What system call tells it elsewhere than on Linux differs; there it waits.

    Args:
        server: that of a runner that was set up.
    """
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        abort_left(server)


def abort_left(server: web.Server) -> None:
    """Close those connections of clients that have left by now."""
    for handler in server.connections:
        # There is no public way to ask for this either.
        if handler._buffer_paused and handler.transport is not None and _has_left(handler.transport):  # noqa: SLF001
            handler.transport.abort()


def _has_left(transport: asyncio.Transport) -> bool:
    if _TCP_INFO is not None:
        with suppress(OSError):
            state: bytes = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)
            return state[0] != _ESTABLISHED
    return False
