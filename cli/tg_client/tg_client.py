"""Caller -> gateway: the asynchronous client."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self

from tg_client.flow import DEFAULT_TIMEOUT_SECONDS, Flow
from tg_client.transport import (
    Address,
    Deadline,
    HttpConnections,
    HttpTransport,
    OnRetry,
    Retries,
    Transport,
    bearer_token,
    open_socket,
)
from tg_schema.live import LiveDocument, StoppedStream
from tg_schema.served_model import ServedModel, ServedModels
from tg_schema.usage_report import UsageRequest, UsageResponse


class Socket:
    """One WebSocket; any number of streams share it."""

    def __init__(self, door: Transport, timeout: float, retries: Retries) -> None:
        self._door = door
        self._timeout = timeout
        self._retries = retries

    def flow(self, flow: str | None = "default") -> Flow:
        """The services of one flow, through this socket; None = as in `TgClient.flow`."""
        return Flow(self._door, flow, self._timeout, self._retries)


class TgClient:
    """A gateway's client: enter it with `async with`, or `close` it; it serves any number of concurrent streams.

    Args:
        url: the gateway; None = TOKENGRID_URL, else TRUSTGRAPH_URL, else `http://localhost:8888/`.
        token: the bearer token; None = TOKENGRID_TOKEN, else TRUSTGRAPH_TOKEN, else no token.
        timeout: seconds to the first record of a stream, and between two; for a non-streaming answer, to the answer.
        idle: seconds of silence, without even a keep-alive comment, after which an event stream fails.
        retries: how often a call is repeated, before its first record and within its `timeout`, after an error that is
            `retryable`, not before its `retry_after`. None = after `RateLimited` as long as `timeout` lasts, and three
            times after other errors; 0 = never.
        on_retry: is called before each wait, with the error and the seconds until the next attempt.

    Raises:
        BadRequest: the URL or the token is malformed.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        idle: float = 60.0,
        retries: int | None = None,
        on_retry: OnRetry | None = None,
    ) -> None:
        self._address = Address.of(url)
        self._token = bearer_token(token)
        self._timeout = timeout
        self._idle = idle
        self._retries = Retries(retries, on_retry)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        self._connections = HttpConnections(self._address.base, headers)

    async def __aenter__(self) -> Self:
        self._connections.bind()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; streams that are still being read fail. Nothing can be asked any more."""
        await self._connections.aclose()

    def flow(self, flow: str | None = "default") -> Flow:
        """The services of one flow; each call is a separate HTTP request.

        None = for each text completion, the flow that has its `model`, and `default` for all else.
        """
        self._connections.check_open()
        return Flow(self._http, flow, self._timeout, self._retries)

    async def models(self, *, timeout: float | None = None) -> tuple[ServedModel, ...]:
        """The models that can be asked now, of all flows. `timeout` is in seconds; None = the client's.

        Raises:
            TgError: as for every call; NotFound if the gateway is older than this call.
        """
        clock = Deadline(self._timeout if timeout is None else timeout, self._idle)
        asked = partial(self._http.get, self._address.models, ServedModels, clock)
        return (await self._retries.repeat(clock, asked)).models

    async def usage(
        self,
        by: Sequence[str] = (),
        *,
        since: str = "7d",
        until: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> UsageResponse:
        """Sums of what was used: of all keys for an administrator, else of one's own.

        The arguments are as in `tg_schema.usage_report.UsageRequest`.

        Raises:
            TgError: as for every call; NotFound if the gateway's configuration has no service `usage`.
        """
        clock = Deadline(self._timeout if timeout is None else timeout, self._idle)
        url = self._address.usage(UsageRequest(tuple(by), since, until, key))
        return await self._retries.repeat(clock, partial(self._http.get, url, UsageResponse, clock))

    async def live(self, *, timeout: float | None = None) -> LiveDocument:
        """What the gateway does now: all of it for an administrator, else one's own streams.

        Raises:
            TgError: as for every call; NotFound if the gateway is older than this call.
        """
        clock = Deadline(self._timeout if timeout is None else timeout, self._idle)
        return await self._retries.repeat(clock, partial(self._http.get, self._address.live, LiveDocument, clock))

    @asynccontextmanager
    async def follow_live(self) -> AsyncIterator[AsyncIterator[LiveDocument]]:
        """Enter it and iterate: the same, anew every second. The gateway ends it after some minutes; ask again then.

        Raises:
            TgError: as `live`, or the connection breaks off; while iterating.
        """
        clock = Deadline(self._timeout, self._idle)
        async with aclosing(self._http.follow(self._address.live, LiveDocument, clock)) as changes:
            yield _apply(changes)

    async def stop_stream(self, stream: str) -> None:
        """Stop a stream of the gateway, by its id in `live`, and the model behind it.

        Raises:
            TgError: as for every call; NotFound if it has ended, or is another key's or another gateway's.
        """
        clock = Deadline(self._timeout, self._idle)
        await self._http.get(self._address.stop(stream), StoppedStream, clock, "POST")

    @property
    def _http(self) -> HttpTransport:
        return HttpTransport(self._address, self._connections, self._idle)

    @asynccontextmanager
    async def socket(self) -> AsyncIterator[Socket]:
        """Open a WebSocket; leaving it ends its running streams.

        Raises:
            TgError: no gateway or WebSocket answers there, or the token is not valid.
        """
        self._connections.bind()
        async with AsyncExitStack() as stack:

            async def enter() -> Transport:
                return await stack.enter_async_context(open_socket(self._address, self._token))

            door = await self._retries.repeat(Deadline(self._timeout), enter)
            yield Socket(door, self._timeout, self._retries)


async def _apply(changes: AsyncIterator[LiveDocument]) -> AsyncIterator[LiveDocument]:
    """The document after each change."""
    shown: LiveDocument | None = None
    async for change in changes:
        shown = (shown or change).apply(change)
        yield shown
