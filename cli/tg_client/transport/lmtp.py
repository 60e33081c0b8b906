"""Command -> gateway: an LMTP socket with one stream at a time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tg_client.transport.address import Address, bearer_token
from tg_client.transport.deadline import Deadline
from tg_client.transport.errors import make_incomplete
from tg_client.transport.records import bytes_of
from tg_schema import TgError, decode
from tg_schema.errors import NotFound

if TYPE_CHECKING:
    from tg_client.transport.websocket_connection import WebSocketConnection

T = TypeVar("T")

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Largest message from the gateway, in bytes."""
_MAX_UNREAD_MESSAGES = 16
"""Messages buffered for the reader of the items. When the buffer is full, the connection is not read."""


class LmtpItem(msgspec.Struct, frozen=True):
    """One item of a TOKEN or MSG message. Its type and the mode decide which fields it has."""

    stream_id: int | None = None
    text: str = ""
    token: int | None = None
    logprob: float | None = None
    finish_reason: str | None = None
    top_logprobs: dict[str, float] = {}
    error: str | None = None
    capabilities: dict[str, Any] = {}


class LmtpSocket:
    """Created by `open_lmtp`.

    Attributes:
        lost: whether the connection has ended, so that no further request can be sent.
    """

    def __init__(self, socket: "WebSocketConnection", base: str, timeout: float, model: str) -> None:
        self.lost = False
        self._socket = socket
        self._messages: asyncio.Queue[str | None] = asyncio.Queue(_MAX_UNREAD_MESSAGES)
        self._base = base
        self._timeout = timeout
        self._model = model
        self._ids = count(1)

    async def knows_raw_text(self) -> bool:
        """Whether the model takes a prompt as raw text.

        Raises:
            NotFound: there is no such model.
        """
        stream = next(self._ids)
        await self._send("MODEL_INFO", {"stream_id": stream, "model": self._model})
        (info,) = await self._next(stream)
        if info.error is not None:
            raise NotFound(info.error)
        return bool(info.capabilities.get("raw_text"))

    async def generate(self, fields: dict[str, Any]) -> AsyncGenerator[LmtpItem, None]:
        """The items of a stream, as they arrive; the last one has an error or a `finish_reason`.

        Leaving it early sends its cancel.
        """
        stream, ended = next(self._ids), False
        await self._send("GENERATE", {**fields, "stream_id": stream, "model": self._model})
        try:
            while not ended:
                for item in await self._next(stream):
                    ended = item.error is not None or item.finish_reason is not None
                    yield item
        finally:
            if not ended and not self.lost:
                await self._send("CANCEL", {"stream_id": stream})

    async def read(self) -> None:
        """Read until the connection ends, even while no stream runs, because reading answers the gateway's pings."""
        with suppress(TgError):
            while (message := await self._socket.receive()) is not None:
                await self._messages.put(message)
        self.lost = True
        await self._messages.put(None)

    async def _send(self, kind: str, fields: dict[str, Any]) -> None:
        await self._within(self._socket.send(b"%b %b" % (kind.encode(), bytes_of(fields))))

    async def _within(self, work: Awaitable[T]) -> T:
        # Each message gets a timeout of its own: the gateway may be slow between two, and the user between two lines.
        return await Deadline(self._timeout).within(work)

    async def _next(self, stream: int) -> list[LmtpItem]:
        """The items of the next message that has any of this stream; items of a cancelled stream may still arrive."""
        while True:
            message = await self._within(self._messages.get())
            if message is None:
                raise make_incomplete(self._base)
            items = decode(list[LmtpItem], message.partition(" ")[2])
            if found := [item for item in items if item.stream_id == stream]:
                return found


@asynccontextmanager
async def open_lmtp(url: str, timeout: float, model: str) -> AsyncIterator[LmtpSocket]:
    """Open an LMTP socket of the gateway at `url`.

    Raises:
        TgError: there is no gateway, or it refuses.
    """
    # Imported late, as for `TgClient.socket`: only these calls need it.
    from tg_client.transport.websocket_connection import open_websocket

    base = Address.of(url).base
    clock = Deadline(timeout)
    async with AsyncExitStack() as stack:
        opening = open_websocket(base, "lmtp", bearer_token(None), max_frame=MAX_MESSAGE_BYTES)
        opened = LmtpSocket(await clock.within(stack.enter_async_context(opening)), base, timeout, model)
        reading = asyncio.create_task(opened.read(), name="lmtp-reader")
        try:
            yield opened
        finally:
            reading.cancel()
            await asyncio.wait([reading])
