"""One stream of HTTP/2 -> the messages of a gRPC call, and back (gRPC over HTTP/2, the protocol's own text)."""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from urllib.parse import quote

from typing_extensions import override

from tg_gateway.envoy.http2_frames import ErrorCode
from tg_gateway.envoy.http2_stream import STREAM_WINDOW, Http2Stream, Receiver

MAX_UNSENT_BYTES = 64 * 1024
"""Of a call: above it `send` waits until the peer has taken all."""
_PREFIX_BYTES = 5
_MESSAGE_COST = 64
"""Bytes that a message which waits takes beside its own: many empty ones are much too."""
_MAX_TEXT = 120
"""Of an error's text: its length has one byte in HPACK."""

# HPACK without a dynamic table: `:status` and `content-type` by their static indices, the rest as literals.
OPENING = b"\x88\x0f\x10\x10application/grpc"
_UNSUPPORTED_MEDIA_TYPE = b"\x08\x03415"


class GrpcStatus(IntEnum):
    """Those that are sent."""

    OK = 0
    UNKNOWN = 2
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class GrpcFault(Exception):
    """Ends a call with this status; the text is for the caller."""

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def write_status(status: GrpcStatus, text: str = "") -> bytes:
    """Trailers, as an encoded block."""
    digits = b"%d" % status
    block = b"\x00\x0bgrpc-status" + bytes((len(digits),)) + digits
    if not text:
        return block
    # A cut must not part a "%" from its digits.
    message = quote(text, safe=" !#$&'()*+,/:;<=>?@[]^_`{|}~\"")[:_MAX_TEXT].encode()
    if b"%" in message[-2:]:
        message = message[: message.rindex(b"%")]
    return block + b"\x00\x0cgrpc-message" + bytes((len(message),)) + message


class GrpcCall(Receiver):
    """A call: `read` and `send` are for its task alone. When the caller leaves, the task is cancelled.

    Args:
        stream: of the connection.
        max_message: bytes of a message that the caller may send.

    Attributes:
        task: runs it; set by the server.
        count_kept: set by a task that keeps what it has read: how many bytes of it. It is asked seldom.
    """

    task: "asyncio.Task[None] | None" = None
    count_kept: Callable[[], int] = int

    def __init__(self, stream: Http2Stream, max_message: int) -> None:
        self._stream = stream
        self._max_message = max_message
        self._partial = bytearray()
        self._messages: deque[bytes] = deque()
        self._unread = 0
        self._held = 0
        self._ended = False
        self._begun = False
        self._changed: asyncio.Future[None] | None = None

    async def read(self) -> bytes | None:
        """The caller's next message; None = there is none any more."""
        while not self._messages:
            if self._ended:
                return None
            await self._wait()
        message = self._messages.popleft()
        self._unread -= len(message) + _MESSAGE_COST
        if self._held:
            self._release()
        return message

    async def send(self, message: bytes) -> None:
        """Send a message. Returns when there is room for another one."""
        if not self._begun:
            self._begun = True
            self._stream.begin(OPENING)
        self._stream.send(b"\0" + len(message).to_bytes(4) + message)
        while self._stream.unsent > MAX_UNSENT_BYTES:
            await self._wait()

    def close(self, status: GrpcStatus, text: str = "") -> None:
        """End it, if it has not ended."""
        # Without an answer the trailers are its head too.
        block = write_status(status, text)
        self._stream.end(block if self._begun else OPENING + block)

    def refuse_media_type(self) -> None:
        """End what is no gRPC."""
        self._stream.end(_UNSUPPORTED_MEDIA_TYPE)

    def abort(self, status: GrpcStatus, text: str) -> None:
        """End it and its task."""
        self.close(status, text)
        self._cancel()

    @override
    def receive(self, data: bytes, ended: bool) -> None:
        self._held += len(data)
        self._ended = ended
        try:
            self._cut(data)
            if ended and self._partial:
                raise GrpcFault(GrpcStatus.INTERNAL, "the request ends within a message")
        except GrpcFault as fault:
            self.abort(fault.status, str(fault))
            return
        if self._unread <= STREAM_WINDOW:
            # As `_release` does, without a call for each message.
            self._stream.take(self._held)
            self._held = 0
        if self._messages or ended:
            self._wake()

    def _cut(self, data: bytes) -> None:
        had = self._partial
        if had:
            had += data
        source, at = had or data, 0
        while len(source) - at >= _PREFIX_BYTES:
            size = int.from_bytes(source[at + 1 : at + _PREFIX_BYTES])
            if source[at]:
                raise GrpcFault(GrpcStatus.UNIMPLEMENTED, "messages cannot be compressed; send them as they are")
            if size > self._max_message:
                raise GrpcFault(GrpcStatus.RESOURCE_EXHAUSTED, f"a message exceeds {self._max_message} bytes")
            end = at + _PREFIX_BYTES + size
            if len(source) < end:
                break
            self._messages.append(bytes(source[at + _PREFIX_BYTES : end]))
            self._unread += size + _MESSAGE_COST
            at = end
        if source is had:
            del had[:at]
        else:
            had += data[at:]

    def _release(self) -> None:
        """Let the peer send more, unless too many whole messages wait to be read."""
        if self._held and self._unread <= STREAM_WINDOW:
            self._stream.take(self._held)
            self._held = 0

    @property
    @override
    def held(self) -> int:
        return len(self._partial) + self._unread + self.count_kept()

    @override
    def overflow(self) -> None:
        self._partial.clear()
        self._messages.clear()
        if self._stream.unsent:
            # Trailers would wait behind it for a window that may never open.
            self._stream.abandon(ErrorCode.ENHANCE_YOUR_CALM)
        self.abort(GrpcStatus.RESOURCE_EXHAUSTED, "the connection's calls hold too much; send less at a time")

    @override
    def drained(self) -> None:
        self._wake()

    @override
    def reset(self) -> None:
        self._cancel()

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def _wait(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
