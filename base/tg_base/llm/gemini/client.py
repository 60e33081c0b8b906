"""Gemini -> Google's SDK -> socket: how its client is called. The rooms make the client, and import the SDK.

The SDK prepares requests (URL, credentials, headers), which stay good for a while; our connections send them. Its own
reading fails on keep-alives, takes an end without terminal marker for a success, and waits seconds after a failure.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from yarl import URL

from tg_base.llm.http import Failures, HttpAnswer

if TYPE_CHECKING:
    from tg_base.llm.http.pool import HttpPool

PREPARED_SECONDS = 60.0
"""Seconds that a prepared request is used, so that tokens with an end are renewed by the SDK in time."""


class PreparedRequest(Protocol):
    """What we need of a request of the SDK's HTTP library."""

    @property
    def url(self) -> Any:
        """Where it goes."""

    @property
    def headers(self) -> Any:
        """By name in any case."""


class _Prepared(msgspec.Struct, frozen=True):
    url: URL
    headers: tuple[tuple[str, str], ...]
    until: float


class GeminiConnection:
    """A client of the SDK whose requests go nowhere but into `recorded`, and a pool of connections that sends them."""

    def __init__(
        self, client: Any, recorded: list[PreparedRequest], pool: "HttpPool", failures: Failures, model: str
    ) -> None:
        self._client = client
        self._recorded = recorded
        self._pool = pool
        self._model = model
        self._prepared: dict[Callable[[], Awaitable[None]], _Prepared] = {}
        self._preparing = asyncio.Lock()
        self.failures = failures

    async def post(self, body: bytes) -> HttpAnswer:
        """Ask for an answer as a stream; any status is an answer."""
        return await self._send("POST", self._ask, body)

    async def models(self) -> HttpAnswer:
        """Ask for the list of models; any status is an answer."""
        return await self._send("GET", self._list, None)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def _ask(self) -> None:
        async for _ in await self._client.aio.models.generate_content_stream(model=self._model, contents="-"):
            pass

    async def _list(self) -> None:
        await self._client.aio.models.list(config={"page_size": 1000})

    async def _send(
        self, method: Literal["GET", "POST"], call: Callable[[], Awaitable[None]], body: bytes | None
    ) -> HttpAnswer:
        prepared = self._prepared.get(call)
        if prepared is None or prepared.until < time.monotonic():
            prepared = await self._prepare(call)
        answer = await self._pool.ask(method, prepared.url, prepared.headers, body)
        if not answer.good:
            self._prepared.pop(call, None)
        return answer

    async def _prepare(self, call: Callable[[], Awaitable[None]]) -> _Prepared:
        """Let the SDK do all of its work on a request, up to the network; once at a time."""
        async with self._preparing:
            until = time.monotonic() + PREPARED_SECONDS
            self._recorded.clear()
            await call()
            recorded = self._recorded.pop()
            url = URL(str(recorded.url), encoded=True)
            prepared = self._prepared[call] = _Prepared(url, tuple(recorded.headers.multi_items()), until)
            return prepared
