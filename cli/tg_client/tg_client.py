"""Caller -> gateway: the asynchronous client."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

from tg_client.flow import DEFAULT_TIMEOUT_SECONDS, Flow
from tg_client.transport import Address, HttpConnections, HttpTransport, WebSocketTransport, bearer_token, open_socket
from tg_schema.errors import BadRequest
from tg_schema.served_model import ServedModel, ServedModels


class Socket:
    """One WebSocket; any number of streams share it."""

    def __init__(self, door: WebSocketTransport, timeout: float) -> None:
        self._door = door
        self._timeout = timeout

    def flow(self, flow: str | None = "default") -> Flow:
        """The services of one flow, through this socket; None = as in `TgClient.flow`."""
        return Flow(self._door, flow, self._timeout)


class TgClient:
    """A gateway's client. Enter it with `async with`; one client serves any number of concurrent streams.

    Args:
        url: the gateway; None = TOKENGRID_URL, else TRUSTGRAPH_URL, else `http://localhost:8888/`.
        token: the bearer token; None = TOKENGRID_TOKEN, else TRUSTGRAPH_TOKEN, else no token.
        timeout: seconds to the first record of a stream, and between two; for a non-streaming answer, to the answer.
        idle: seconds of silence, without even a keep-alive comment, after which an event stream fails.

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
    ) -> None:
        self._address = Address.of(url)
        self._token = bearer_token(token)
        self._timeout = timeout
        self._idle = idle
        self._entered: HttpConnections | None = None
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        self._entered = HttpConnections(self._address.base, headers)
        self._exit.push_async_callback(self._entered.aclose)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    def flow(self, flow: str | None = "default") -> Flow:
        """The services of one flow; each call is a separate HTTP request.

        None = for each text completion, the flow that has its `model`, and `default` for all else.
        """
        return Flow(self._http, flow, self._timeout)

    async def models(self, *, timeout: float | None = None) -> tuple[ServedModel, ...]:
        """The models that can be asked now, of all flows. `timeout` is in seconds; None = the client's.

        Raises:
            TgError: as for every call; NotFound if the gateway is older than this call.
        """
        return (
            await self._http.get(self._address.models, ServedModels, self._timeout if timeout is None else timeout)
        ).models

    @property
    def _http(self) -> HttpTransport:
        return HttpTransport(self._address, self._connections, self._idle)

    @property
    def _connections(self) -> HttpConnections:
        if self._entered is None or self._entered.closed:
            raise BadRequest("the client is not open: use it inside `async with TgClient(...) as client`")
        return self._entered

    @asynccontextmanager
    async def socket(self) -> AsyncIterator[Socket]:
        """Open a WebSocket; leaving it ends its running streams.

        Raises:
            TgError: no gateway or WebSocket answers there, or the token is not valid.
        """
        _ = self._connections
        async with open_socket(self._address, self._token) as door:
            yield Socket(door, self._timeout)
