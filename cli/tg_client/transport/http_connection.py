"""HttpTransport -> httpx2 -> socket: only this file imports httpx2, with the first request, because that is slow.

No body is compressed, no redirect is followed, and no proxy is used.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tg_client.transport.errors import (
    BROKEN,
    COMPRESSED,
    INVALID_URL,
    NO_GATEWAY,
    NO_HTTP,
    NO_TLS,
    SLOW,
    UNKNOWN_HOST,
    UNTRUSTED,
    Reason,
    WireError,
)
from tg_schema.errors import BadRequest, ProtocolError

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT_SECONDS = 10.0
"""Timeout of opening a connection, in seconds."""
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Largest response that arrives as one JSON body, in bytes."""
_END_SECONDS = 1.0
"""Seconds to wait for the end of the body after the last record, so that the connection can be reused."""
IDLE_CONNECTION_SECONDS = 5.0
"""Seconds that an idle connection is kept. A gateway keeps it longer, so a reused connection is never half closed."""
_CAUSES: tuple[tuple[type[Exception], Reason], ...] = (
    (ssl.SSLCertVerificationError, UNTRUSTED),
    (ssl.SSLError, NO_TLS),
    (socket.gaierror, UNKNOWN_HOST),
    (Exception, NO_GATEWAY),
)
"""Causes of a failed connection -> our errors, the most special first."""

T = TypeVar("T")


class HttpResponse:
    """A response whose head has arrived.

    Attributes:
        status: the HTTP status.
        headers: the headers; their names are case-insensitive.
        content_type: without parameters.
    """

    def __init__(self, response: "httpx2.Response") -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._response = response
        # Not `aiter_raw`: it would close the response at its end, and with it other connections that are being read.
        self._parts = aiter(cast("AsyncIterable[bytes]", response.stream))

    async def read(self) -> bytes:
        """The next bytes that arrived; b"" at the body's end.

        Raises:
            WireError: the connection broke before the body's end, or the bytes are not a valid body.
        """
        try:
            with _translated():
                return await anext(self._parts, b"")
        except WireError:
            # The head was valid HTTP, so whatever happened counts as a body that broke off.
            raise WireError from None

    async def read_all(self) -> bytes:
        """The whole body.

        Raises:
            ProtocolError: the body has more than `MAX_BODY_BYTES`.
            WireError: the body breaks off.
        """
        parts: list[bytes] = []
        left = MAX_BODY_BYTES
        while part := await self.read():
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise ProtocolError(f"the gateway's answer is larger than {MAX_BODY_BYTES} bytes")
        return b"".join(parts)

    async def finish(self) -> None:
        """Read the end of the body. If the gateway does not send it in time, the connection is not reused."""
        with suppress(TimeoutError, WireError):
            async with asyncio.timeout(_END_SECONDS):
                while await self.read():
                    pass

    async def close(self) -> None:
        """Release the connection. Before the body's end this closes it, which tells the gateway to stop."""
        await _uncut(self._response.aclose())


class HttpConnections:
    """Connections to one gateway: any number at a time. Idle ones are reused.

    Args:
        base: the gateway's URL.
        headers: headers of each request.
    """

    def __init__(self, base: str, headers: Mapping[str, str]) -> None:
        self._secure = base.startswith("https:")
        self._headers = {**headers, "Accept-Encoding": "identity"}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx2.AsyncClient | None = None
        self.closed = False

    def check_open(self) -> None:
        """Check that requests can be sent.

        Raises:
            BadRequest: the client is closed.
        """
        if self.closed:
            raise BadRequest("the client is closed: ask inside `async with TgClient(...) as client`")

    def bind(self) -> None:
        """Check that the running loop can send requests; it must be the same loop at each call.

        Raises:
            BadRequest: the client is closed, or was used in another loop.
        """
        self.check_open()
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        # Only the loop that opened a connection reads it; in another loop an answer would never arrive.
        if loop is not self._loop:
            raise BadRequest("the client was opened in another event loop: open a new client in each loop")

    async def ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> HttpResponse:
        """Send a request, and return the response when its head has arrived.

        Raises:
            WireError: no response arrived.
        """
        # Load the certificates only if needed, and in a thread: that reads all certificates of the system.
        tls = await asyncio.to_thread(ssl.create_default_context) if self._secure and self._client is None else False
        if self.closed:
            raise WireError
        with _translated():
            client = self._client = self._client or self._open(tls)
            steps = {"trace": self._go_on}
            request = client.build_request(method, url, headers=dict(headers), content=body, extensions=steps)
            response = HttpResponse(await _uncut(client.send(request, stream=True), lambda late: late.aclose()))
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.close()
            raise WireError(COMPRESSED)
        return response

    async def _go_on(self, step: str, about: Mapping[str, object]) -> None:
        # `aclose` did not see a connection that was still being opened.
        if self.closed and step == "http11.send_request_headers.started":
            raise WireError

    async def aclose(self) -> None:
        """Close all connections; streams that are still being read get a WireError."""
        self.closed = True
        # Only the loop that opened the connections can close them.
        if self._client is not None and asyncio.get_running_loop() is self._loop:
            await self._client.aclose()

    def _open(self, tls: ssl.SSLContext | bool) -> "httpx2.AsyncClient":
        import httpx2

        return httpx2.AsyncClient(
            headers=self._headers,
            limits=httpx2.Limits(keepalive_expiry=IDLE_CONNECTION_SECONDS),
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT_SECONDS),
            trust_env=False,
            verify=tls,
        )


async def _uncut(work: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, None]] | None = None) -> T:
    """Await `work`, and cancel it as anyio does: httpx2 finishes closing a connection only under such a cancellation.

    A request, like a close, also closes other connections that have expired. Those have left the pool by then, so they
    would stay open if the task were cancelled while it closes them.

    Args:
        work: a call of httpx2.
        undo: called with the result if `work` finished although it was cancelled.
    """
    import anyio

    scope = anyio.CancelScope()

    async def run() -> T:
        with scope:
            return await work
        raise asyncio.CancelledError

    task = asyncio.create_task(run())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        scope.cancel()
        await asyncio.wait([task])
        if undo is not None and not task.cancelled() and task.exception() is None:
            await undo(task.result())
        raise


@contextmanager
def _translated() -> Iterator[None]:
    import httpx2

    try:
        yield
    except (httpx2.InvalidURL, UnicodeError):
        raise WireError(INVALID_URL) from None
    except httpx2.ConnectTimeout:
        raise WireError(SLOW) from None
    except httpx2.ConnectError as error:
        raise WireError(_find_cause(error)) from None
    except httpx2.RemoteProtocolError as error:
        raise WireError(BROKEN if "disconnected" in str(error) else NO_HTTP) from None
    except (httpx2.HTTPError, httpx2.StreamError, RuntimeError):
        raise WireError from None


def _find_cause(error: BaseException) -> Reason:
    """The reason for the innermost of httpx2's exceptions, which are chained."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return next(ours for theirs, ours in _CAUSES if isinstance(error, theirs))
