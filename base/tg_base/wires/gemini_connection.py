"""Gemini -> Google's SDK -> socket: how its client is called. The rooms make the client, and import the SDK.

The SDK prepares requests (URL, credentials, headers), which stay good for a while; its HTTP library sends them. Its own
reading fails on keep-alives, takes an end without terminal marker for a success, and waits seconds after a failure.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

import msgspec

from tg_base.wires.sdk_response import Failures, Response

PREPARED_FOR = 60.0
"""Seconds that a prepared request is used, so that tokens with an end are renewed by the SDK in time."""


class PreparedRequest(Protocol):
    """What we need of a request of the SDK's HTTP library."""

    @property
    def url(self) -> Any:
        """Where it goes."""

    @property
    def headers(self) -> Any:
        """By name in any case."""


class HttpClient(Protocol):
    """What we need of a client of the SDK's HTTP library."""

    def build_request(self, method: str, url: Any, *, headers: Any, content: bytes | None) -> Any:
        """Make a request."""

    async def send(self, request: Any, *, stream: bool) -> Any:
        """Send it; the answer's body is still to be read."""

    async def aclose(self) -> None:
        """Close the connections."""


class _Prepared(msgspec.Struct, frozen=True):
    url: Any
    headers: Mapping[str, str]
    until: float


class GeminiConnection:
    """A client of the SDK whose requests go nowhere but into `recorded`, and a pool of connections that sends them."""

    def __init__(
        self, client: Any, recorded: list[PreparedRequest], http: HttpClient, failures: Failures, model: str
    ) -> None:
        self._client = client
        self._recorded = recorded
        self._http = http
        self._model = model
        self._prepared: dict[Callable[[], Awaitable[None]], _Prepared] = {}
        self._preparing = asyncio.Lock()
        self.failures = failures

    async def post(self, body: bytes) -> Response:
        """Ask for an answer as a stream; any status is an answer."""
        return await self._sent("POST", self._ask, body)

    async def models(self) -> Response:
        """Ask for the list of models; any status is an answer."""
        return await self._sent("GET", self._list, None)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _ask(self) -> None:
        async for _ in await self._client.aio.models.generate_content_stream(model=self._model, contents="-"):
            pass

    async def _list(self) -> None:
        await self._client.aio.models.list(config={"page_size": 1000})

    async def _sent(self, method: str, call: Callable[[], Awaitable[None]], body: bytes | None) -> Response:
        prepared = self._prepared.get(call)
        if prepared is None or prepared.until < time.monotonic():
            prepared = await self._prepare(call)
        request = self._http.build_request(method, prepared.url, headers=prepared.headers, content=body)
        response = cast(Response, await self._http.send(request, stream=True))
        if not 200 <= response.status_code < 300:
            self._prepared.pop(call, None)
        return response

    async def _prepare(self, call: Callable[[], Awaitable[None]]) -> _Prepared:
        """Let the SDK do all of its work on a request, up to the network; once at a time."""
        async with self._preparing:
            until = time.monotonic() + PREPARED_FOR
            self._recorded.clear()
            await call()
            recorded = self._recorded.pop()
            headers = {name: value for name, value in recorded.headers.items() if name not in _OF_THE_BODY}
            prepared = self._prepared[call] = _Prepared(recorded.url, {**headers, "accept-encoding": "identity"}, until)
            return prepared


_OF_THE_BODY = {"content-length", "host", "accept-encoding", "transfer-encoding"}
