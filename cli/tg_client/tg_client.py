"""Caller -> gateway: the asynchronous client."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Final, Self

from msgspec import Raw

from tg_client.flow import DEFAULT_TIMEOUT_SECONDS, Flow
from tg_client.record_stream import RecordStream
from tg_client.transport import (
    Address,
    Deadline,
    HttpConnections,
    HttpTransport,
    OnRetry,
    Position,
    Retries,
    Transport,
    bearer_token,
    open_socket,
)
from tg_schema import ServiceSpec
from tg_schema.live import ListedStream, LiveDocument, StoppedStream
from tg_schema.served_model import ServedModel, ServedModels
from tg_schema.service_spec import Req, Resp
from tg_schema.usage_report import UsageRequest, UsageResponse

FOLLOW_AGAIN_SECONDS: Final = 1.0
"""Seconds before a list of streams is requested again after the gateway has ended it."""


class Socket:
    """One WebSocket; any number of streams share it."""

    def __init__(self, door: Transport, http: HttpTransport, timeout: float, retries: Retries) -> None:
        self._door = door
        self._http = http
        self._timeout = timeout
        self._retries = retries

    def flow(self, flow: str | None = "default") -> Flow:
        """The services of one flow, through this socket; None = as in `TgClient.flow`."""
        return Flow(self._door, self._http, flow, self._timeout, self._retries)


class TgClient:
    """A gateway's client: enter it with `async with`, or `close` it. It serves any number of concurrent streams.

    Args:
        url: the gateway; None = TOKENGRID_URL, else TRUSTGRAPH_URL, else `http://localhost:8888/`.
        token: the bearer token; None = TOKENGRID_TOKEN, else TRUSTGRAPH_TOKEN, else no token.
        timeout: seconds to the first record of a stream, and between two; for a non-streaming answer, to the answer.
        idle: seconds of silence, without even a keep-alive comment, after which an event stream fails.
        retries: how often a call is repeated, before its first record and within its `timeout`, after an error that is
            `retryable`, and never before its `retry_after`. None = after `RateLimited` until `timeout`, and three times
            after other errors; 0 = never.
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
        """Close all connections. Streams that are still being read fail, and further calls raise an error."""
        await self._connections.aclose()

    def flow(self, flow: str | None = "default") -> Flow:
        """The services of one flow; each call is a separate HTTP request.

        None = the gateway chooses: for a text completion the flow that has its `model`, otherwise `default`.
        """
        self._connections.check_open()
        return Flow(self._http, self._http, flow, self._timeout, self._retries)

    def attach(
        self,
        spec: ServiceSpec[Req, Resp],
        stream: str,
        after: int = -1,
        *,
        stops: bool = True,
        timeout: float | None = None,
    ) -> RecordStream[Resp]:
        """Resume a kept stream, which then behaves like one that was just requested.

        Args:
            spec: the stream's service. `AgentDialog(client.attach(AGENT, stream))` is an agent's dialog.
            stream: the stream's id: `position.stream` of the earlier call.
            after: the number of the last record received: `position.after` of the earlier call; -1 = none.
            stops: whether leaving the stream stops the model, also for its other readers.
            timeout: as for the earlier call.

        Raises (while it is read):
            NotFound: there is no such stream, or it has expired.
        """
        return RecordStream(
            partial(self._http.attach, spec),
            lambda: self._connections.closed,
            spec,
            self._http,
            Position(stream=stream, after=after),
            timeout=self._timeout if timeout is None else timeout,
            retries=self._retries,
            stops=stops,
        )

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
        """Sums of usage: of all keys if the token is an administrator's, else of its own key.

        The arguments are as in `tg_schema.usage_report.UsageRequest`.

        Raises:
            TgError: as for every call; NotFound if the gateway's configuration has no service `usage`.
        """
        clock = Deadline(self._timeout if timeout is None else timeout, self._idle)
        url = self._address.usage(UsageRequest(tuple(by), since, until, key))
        return await self._retries.repeat(clock, partial(self._http.get, url, UsageResponse, clock))

    async def live(self, *, timeout: float | None = None) -> LiveDocument:
        """What the gateways do now: everything if the token is an administrator's, else the token's own streams.

        Raises:
            TgError: as for every call; NotFound if the gateway is older than this call.
        """
        clock = Deadline(self._timeout if timeout is None else timeout, self._idle)
        return await self._retries.repeat(clock, partial(self._http.get, self._address.live, LiveDocument, clock))

    @asynccontextmanager
    async def follow_live(self) -> AsyncIterator[AsyncIterator[LiveDocument]]:
        """Enter it and iterate: the document of `live`, updated every second. The gateway ends it after some minutes.

        Raises:
            TgError: while iterating: as `live`, or the connection broke off.
        """
        clock = Deadline(self._timeout, self._idle)
        async with aclosing(self._http.follow(self._address.live, LiveDocument, clock)) as changes:
            yield _apply(changes)

    async def stop_stream(self, stream: str) -> None:
        """Stop a stream of any gateway on the bus, by its id in `live`, and the model behind it.

        Raises:
            TgError: as for every call; NotFound if the stream has ended, or belongs to another key.
        """
        clock = Deadline(self._timeout, self._idle)
        await self._http.get(self._address.stop(stream), StoppedStream, clock, "POST")

    @asynccontextmanager
    async def follow_streams(self, *, key: str | None = None) -> AsyncIterator[AsyncIterator[ListedStream]]:
        """Enter it and iterate: the kept streams of a key, then each new one as it begins. The iteration does not end.

        `key` is the key's name, for an administrator; None = the token's own key.

        Raises:
            TgError: while iterating: as for every call, or the connection broke off. Call this again then.
        """
        async with aclosing(self._list_streams(self._address.kept_of(key))) as streams:
            yield streams

    async def _list_streams(self, url: str) -> AsyncGenerator[ListedStream, None]:
        before = frozenset[ListedStream]()
        while True:
            told, clock = set[ListedStream](), Deadline(self._timeout, self._idle)
            async with aclosing(self._http.follow(url, ListedStream, clock)) as streams:
                async for stream in streams:
                    if stream not in before and stream not in told:
                        yield stream
                    told.add(stream)
            # The gateway ends this response now and then. The next one begins with all streams that are still listed.
            before = frozenset(told)
            await asyncio.sleep(FOLLOW_AGAIN_SECONDS)

    @asynccontextmanager
    async def follow_records(self, stream: str, *, key: str | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        """Enter it and iterate: the records of a kept stream as JSON, and further ones until its end.

        `tg_schema.recorded.Recorded` decodes the fields that all records have. If the stream failed, the last record is
        the error. `key`: as for `follow_streams`.

        Raises:
            TgError: while iterating: as for every call, or the connection broke off.
        """
        clock = Deadline(self._timeout, self._idle)
        async with aclosing(self._http.follow(self._address.records(stream, key), Raw, clock)) as records:
            yield (bytes(record) async for record in records)

    @property
    def _http(self) -> HttpTransport:
        return HttpTransport(self._address, self._connections, self._idle)

    @asynccontextmanager
    async def socket(self) -> AsyncIterator[Socket]:
        """Open a WebSocket. Leaving it ends the streams that still run on it.

        Raises:
            TgError: no gateway or WebSocket answers there, or the token is not valid.
        """
        self._connections.bind()
        async with AsyncExitStack() as stack:

            async def enter() -> Transport:
                return await stack.enter_async_context(open_socket(self._address, self._token))

            door = await self._retries.repeat(Deadline(self._timeout), enter)
            yield Socket(door, self._http, self._timeout, self._retries)


async def _apply(changes: AsyncIterator[LiveDocument]) -> AsyncIterator[LiveDocument]:
    """The document after each change."""
    shown: LiveDocument | None = None
    async for change in changes:
        shown = (shown or change).apply(change)
        yield shown
